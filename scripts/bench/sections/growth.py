"""How cost grows with size: rows, windows, requests under way and latency. Draws docs/growth.svg."""

import pathlib

import measure
from results import Row
from service import Side, days_of, report_of

PICTURE = pathlib.Path(__file__).parent.parent.parent.parent / "docs" / "growth.svg"
ROWS = [10_000, 100_000, 1_000_000]
# Smaller pages make more windows of the same rows: a window has some tens of pages.
WINDOW_ROWS = 100_000
PAGE_ROWS = [1000, 100, 10, 1]
IN_FLIGHT = [1, 2, 4, 8, 16]
LATENCIES_MS = [0, 50, 200, 500]
LATENCY_ROWS = 50_000
MIB = 2**20
# Twice the work may cost so much more than twice.
STEEPER_MAX = 1.1


def measure_growth(setting, table):
    rows = by_rows(setting)
    windows = by_windows(setting)
    latency = by_latency(setting)
    if setting.data == "smooth":  # The page shows one picture.
        draw(rows, windows, latency)
    for warehouse, costs in rows.items():
        (few, cost_of_few), (many, cost_of_many) = costs[-2:]
        steeper = cost_of_many.wall_secs / cost_of_few.wall_secs / (many / few)
        table.add(Row(f"growth rows {warehouse}", f"time a row of {many:,} against {few:,}, {warehouse}", f"≤ {STEEPER_MAX}", steeper, STEEPER_MAX, True,
                      f"{cost_of_many.wall_secs:.1f} s", f"{cost_of_few.wall_secs:.1f} s"))
    (few, fewer_requests, cost_of_few), (many, more_requests, cost_of_many) = windows[-2:]
    steeper = cost_of_many.wall_secs / cost_of_few.wall_secs / (more_requests / fewer_requests)
    table.add(Row("growth windows", f"time a request, {many:,} windows against {few:,} of the same rows", f"≤ {STEEPER_MAX}", steeper, STEEPER_MAX, True,
                  f"{cost_of_many.wall_secs:.1f} s, {more_requests:,} requests", f"{cost_of_few.wall_secs:.1f} s, {fewer_requests:,} requests"))


def by_rows(setting):
    costs = {"duckdb": [], "parquet": []}
    for rows in ROWS + [setting.big_rows] * (setting.big_rows > 0):
        with setting.service(rows, days_of(rows)) as service:
            for warehouse, found in costs.items():
                cost = Side(setting.program, setting.folder / "growth", service, (), (warehouse,)).first_load()
                found.append((rows, cost))
                measure.tell(f"  {rows} rows, {warehouse}: {cost.wall_secs:.2f} s, {cost.cpu_secs:.2f} s of processors, {cost.peak_rss_bytes / MIB:.0f} MiB")
    return costs


def by_windows(setting):
    """Windows, requests and cost of the same rows."""
    found = []
    with setting.service(WINDOW_ROWS, days_of(WINDOW_ROWS)) as service:
        for page_rows in PAGE_ROWS:
            side = Side(setting.program, setting.folder / "growth", service, more=f"page_rows = {page_rows}")
            cost = side.first_load()
            report = report_of(cost)
            found.append((report["streams"]["responses"]["windows"], report["requests"]["total"], cost))
            measure.tell(f"  pages of {page_rows}: {found[-1][0]} windows, {found[-1][1]} requests, {cost.wall_secs:.2f} s")
    return found


def by_latency(setting):
    """Seconds of a backfill, by latency and by requests under way."""
    found = {}
    for latency_ms in LATENCIES_MS:
        with setting.service(LATENCY_ROWS, days_of(LATENCY_ROWS), "--latency-ms", str(latency_ms)) as service:
            side = Side(setting.program, setting.folder / "growth", service)
            found[latency_ms] = [side.first_load("--concurrency", str(in_flight)).wall_secs for in_flight in IN_FLIGHT]
            measure.tell(f"  {latency_ms} ms: {', '.join(f'{secs:.2f}' for secs in found[latency_ms])} s with {IN_FLIGHT} under way")
    return found


def draw(rows, windows, latency):
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
    # The same numbers give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "growth", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    figure, ((time, memory), (window, flight)) = pyplot.subplots(2, 2, figsize=(10, 7.5), layout="constrained")
    for warehouse, costs in rows.items():
        sizes = [size for size, _ in costs]
        line, = time.plot(sizes, [cost.wall_secs for _, cost in costs], marker="o", label=f"{warehouse}, seconds")
        time.plot(sizes, [cost.cpu_secs for _, cost in costs], marker=".", linestyle=":", color=line.get_color(), label=f"{warehouse}, seconds of processors")
        memory.plot(sizes, [cost.peak_rss_bytes / MIB for _, cost in costs], marker="o", label=warehouse)
    last_size, last = rows["duckdb"][-1]
    first_size = rows["duckdb"][0][0]
    time.plot([first_size, last_size], [last.wall_secs * first_size / last_size, last.wall_secs], color="gray", linewidth=1, label="in proportion")
    time.set(xscale="log", yscale="log", title="A backfill by responses", xlabel="responses", ylabel="seconds")
    memory.set(xscale="log", ylim=(0, None), title="Peak memory by responses", xlabel="responses", ylabel="MiB")
    window.plot([count for count, _, _ in windows], [cost.wall_secs for _, _, cost in windows], marker="o", label="seconds")
    window.plot([count for count, _, _ in windows], [cost.wall_secs / requests * 1000 for _, requests, cost in windows], marker="o", label="milliseconds a request")
    window.set(xscale="log", yscale="log", title=f"The same {WINDOW_ROWS:,} responses in more windows", xlabel="windows", ylabel="")
    for latency_ms, secs in latency.items():
        flight.plot(IN_FLIGHT, secs, marker="o", label=f"{latency_ms} ms")
    flight.set(xscale="log", yscale="log", xticks=IN_FLIGHT, xticklabels=IN_FLIGHT, title=f"{LATENCY_ROWS:,} responses by latency", xlabel="requests under way", ylabel="seconds")
    flight.minorticks_off()
    for axes in (time, memory, window, flight):
        axes.legend()
    figure.savefig(PICTURE, metadata={"Date": None})
