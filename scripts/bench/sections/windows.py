"""How cost grows with the windows of the same rows."""

import measure
from results import Row
from service import Side, days_of, report_of

# With smaller pages, the same rows have more windows: a window has some tens of pages.
ROWS = 100_000
PAGE_ROWS = [10, 1]
# Twice the work may cost at most twice as much, times this factor.
STEEPER_MAX = 1.1


def measure_windows(setting, table):
    found = []
    with setting.service(ROWS, days_of(ROWS)) as service:
        for page_rows in PAGE_ROWS:
            side = Side(setting.program, setting.folder / "windows", service, more=f"page_rows = {page_rows}")
            cost = side.first_load()
            report = report_of(cost)
            found.append((report["streams"]["responses"]["windows"], report["requests"]["total"], cost))
            measure.tell(f"  pages of {page_rows}: {found[-1][0]} windows, {found[-1][1]} requests, {cost.wall_secs:.2f} s")
    (few, fewer_requests, cost_of_few), (many, more_requests, cost_of_many) = found
    steeper = cost_of_many.wall_secs / cost_of_few.wall_secs / (more_requests / fewer_requests)
    table.add(Row("growth windows", f"time a request, {many:,} windows against {few:,} of the same rows", f"≤ {STEEPER_MAX}", steeper, STEEPER_MAX, True,
                  f"{cost_of_many.wall_secs:.1f} s, {more_requests:,} requests", f"{cost_of_few.wall_secs:.1f} s, {fewer_requests:,} requests"))
