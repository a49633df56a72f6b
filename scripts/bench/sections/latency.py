"""A service that is far away and has a limit: how much of the limit is used, and with how many requests under way."""

import math
import statistics

import measure
from results import Row
from service import Side, days_of, report_of

LATENCY_MS = 200
LIMIT_PER_SEC = 50
# The number of requests that the service accepts at once. With this latency, a client that uses the
# full rate has as many in flight.
BURST = LIMIT_PER_SEC * LATENCY_MS // 1000
# More than needed, so that the program itself must choose the number of requests in flight.
ALLOWED = 32
# The share of the run, at its start and its end, in which the rate is still learned or few windows
# are left.
EDGE_SHARE = 0.2
# A run of a minute. The time to learn a rate does not depend on the length of the run.
ROWS = 3_000_000


def measure_latency(setting, table):
    arguments = ["--latency-ms", str(LATENCY_MS), "--rate-limit", str(LIMIT_PER_SEC), "--burst", str(BURST)]
    with setting.service(ROWS, days_of(ROWS), *arguments) as service:
        side = Side(setting.program, setting.folder / "latency", service).clear()
        # The first run learns the rate. The second run begins with it, as each later night does.
        # Its warehouse is deleted, so it pulls everything again.
        for name in ("first", "second"):
            service.control("DELETE", "log")
            (side.folder / "warehouse.duckdb").unlink(missing_ok=True)
            cost = side.backfill("--concurrency", str(ALLOWED))
            measure.tell(f"  {name}: {cost.wall_secs:.1f} s")
            add(table, name, cost, service.log())


def add(table, name, cost, log):
    answered = [entry for entry in log if entry["status"] == 200]
    arrivals = [entry["arrived_us"] for entry in answered]
    begun, ended = min(arrivals), max(arrivals)
    length = ended - begun
    steady = [entry for entry in answered if begun + EDGE_SHARE * length <= entry["arrived_us"] <= ended - EDGE_SHARE * length]
    rate = len(steady) / (length * (1 - 2 * EDGE_SHARE) / 1e6)
    in_flight, at_any_time = (max(entry["in_flight"] for entry in entries) for entries in (steady, log))
    # A request takes the latency plus the service's time for its page. A client that uses the full
    # rate has this many in flight, rounded up.
    took_ms = statistics.mean((entry["completed_us"] - entry["arrived_us"]) / 1000 for entry in answered)
    needed = math.ceil(LIMIT_PER_SEC * took_ms / 1000)
    refused = sum(entry["status"] == 429 for entry in log)
    seen = (f"{len(answered)} requests for {ROWS:,} rows in {length / 1e6:.1f} s, {refused} refused, "
            f"{report_of(cost)['time_ms']['network']} ms of network time")
    table.add(Row(f"latency {name}", f"{LATENCY_MS} ms a request, limit {LIMIT_PER_SEC}/s, {name} run: share of the limit in use", "≥ 0.95", rate / LIMIT_PER_SEC, 0.95,
                  False, f"{rate:.1f}/s in the middle of the run", seen))
    table.add(Row(f"in flight {name}", "the same: most requests under way against what that needs", "≤ 1.0", in_flight / needed, 1.0, True,
                  f"{in_flight} in the middle of the run, {at_any_time} at any time (allowed: {ALLOWED})",
                  f"{needed}, at {took_ms:.1f} ms a request"))
