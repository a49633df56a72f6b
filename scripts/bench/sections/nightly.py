"""A night of changes in a small warehouse and in a large one."""

import measure
from measure import median
from results import Row
from service import DAY_MS, Side, days_of, report_of

SMALL_ROWS = 100_000
CHANGED = 1000
HOUR_MS = 3_600_000


def measure_nightly(setting, table):
    """The large one has ROWS, or BIG_ROWS if set; in both come as many answers a day, so that only the history differs."""
    costs = {}
    sizes = (SMALL_ROWS, setting.big_rows or setting.rows)
    for rows in sizes:
        with setting.service(rows, max(3, days_of(rows))) as service:
            side = Side(setting.program, setting.folder / "nightly", service, ["with_deleted_responses"], archive=False)
            side.first_load()
            side.run("sync", "--json")
            costs[rows] = [one_night(service, side, seed) for seed in range(1, setting.rounds + 1)]
    small, large = (median(costs[rows]) for rows in sizes)
    table.add(Row("nightly", f"sync of {CHANGED:,} changed rows among {sizes[1]:,}", "≤ 1.5", large / small, 1.5, True,
                  f"{large:.2f} s ({measure.spread(costs[sizes[1]])})", f"among {SMALL_ROWS:,} {small:.2f} s ({measure.spread(costs[SMALL_ROWS])})"))


def one_night(service, side, seed):
    service.control("POST", "clock", {"advance_ms": HOUR_MS})
    service.control("POST", "changes", {"seed": seed, "edits": CHANGED, "within_ms": 2 * DAY_MS})
    cost = side.run("sync", "--json")
    rows = report_of(cost)["streams"]["responses"]
    measure.tell(f"  {service.rows}: {cost.wall_secs:.2f} s, {rows['rows_read']} read, {rows['updated']} updated")
    return cost
