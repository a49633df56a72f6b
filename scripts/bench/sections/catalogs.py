"""What each kind of warehouse costs: a load, a night, and a year of nights with and without weekly maintenance."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

import environments
import measure
from delaying_proxy import DelayingProxy
from measure import median
from results import Row
from service import DAY_MS, Side, days_of, report_of

from .backfill import MIB
from .bucket import DELAY_SECS

REPOSITORY = pathlib.Path(__file__).parents[3]
# Prints the variables of the servers, and keeps them until its input ends.
HOLD = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"
PACKAGES = ["duckdb==1.5.5", "pyiceberg[pyarrow,pyiceberg-core]==0.12.0"]
NIGHTS = int(os.environ.get("NIGHTS", 365))
# The nights after which a year is described.
SHOWN = {1, 7, *range(30, NIGHTS, 30)}
WEEK = 7
# The year begins with this history.
YEAR_ROWS, YEAR_DAYS = 10_000, 100
NIGHT = {"new_answers": 100, "edits": 20, "soft_deletes": 5, "late": 3, "within_ms": 20 * DAY_MS}
LOADED_NIGHT = {"new_answers": 2740, "edits": 900, "soft_deletes": 100, "within_ms": 20 * DAY_MS}
FLAGS = ["with_deleted_responses", "with_meta"]
QUERY = "SELECT month, nps FROM nps_by_month ORDER BY month"


@dataclasses.dataclass
class Kind:
    name: str
    title: str
    # The line of the configuration. `{name}` is replaced by a new name for each warehouse.
    line: str
    needs_servers: bool = True
    # Nights without the weekly maintenance, beside as many with it as the year has; `None` if the program or the server maintains the warehouse.
    unmaintained_nights: int | None = None


KINDS = [
    Kind("duckdb", "DuckDB file", 'duckdb = "warehouse.duckdb"', needs_servers=False),
    Kind("parquet", "Parquet folder", 'parquet = "parquet"', needs_servers=False),
    Kind("bucket", "Parquet in a bucket", 'parquet = "s3://studysync/{name}"'),
    Kind("ducklake", "DuckLake, catalog file", 'ducklake = "warehouse.ducklake"', unmaintained_nights=NIGHTS),
    Kind("ducklake-postgres", "DuckLake, catalog in PostgreSQL, files in a bucket",
         'ducklake = "{postgres}?schema={name}&data=s3://studysync/{name}"', unmaintained_nights=30),
    Kind("postgres", "PostgreSQL", 'postgres = "{postgres}?schema={name}"'),
    Kind("iceberg", "Iceberg", 'iceberg = "{iceberg}?warehouse=lakehouse&namespace={name}"', unmaintained_nights=60),
]


class KindSide(Side):
    """Each load begins with a new warehouse."""

    loads = 0

    def __init__(self, setting, kind, service, **more):
        self.kind, self.name = kind, "{name}"
        addresses = {"postgres": os.environ.get("STUDYSYNC_TEST_POSTGRES"), "iceberg": os.environ.get("STUDYSYNC_TEST_ICEBERG")}
        super().__init__(setting.program, setting.folder / f"catalogs-{kind.name}", service, FLAGS,
                         [kind.line.format(**addresses, name="{name}")], **more)

    def clear(self):
        KindSide.loads += 1
        name = f"load_{os.getpid()}_{KindSide.loads}"
        self.toml, self.name = self.toml.replace(self.name, name), name
        return super().clear()

    def sync(self):
        cost = self.run("sync", "--json")
        rows = report_of(cost)["streams"]["responses"]
        if not rows["inserted"] or not rows["updated"]:
            sys.exit(f"{self.kind.name}: a night without changes: {rows}")
        return cost

    def query(self):
        return median([self.run("query", QUERY, "--format", "csv") for _ in range(3)])

    def tool(self, action, *arguments):
        """Runs scripts/bench/lakes.py."""
        return measure.run([environments.installed("lakes", PACKAGES), REPOSITORY / "scripts/bench/lakes.py", action, self.kind.name, self.name, *map(str, arguments)], cwd=self.folder)


@contextlib.contextmanager
def servers():
    """The servers of `scripts/lakes.sh`, whose addresses are in the variables; gives the proxies before the bucket and the Iceberg catalog,
    or `None` if the servers cannot be had."""
    before = dict(os.environ)
    process = subprocess.Popen([REPOSITORY / "scripts/lakes.sh", "run", sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env={**before, "FSYNC": "on"})
    try:
        said = process.stdout.readline()
        if not said.startswith("{"):
            measure.tell(f"  {said.strip() or 'the servers did not start'}")
            yield None
            return
        os.environ |= json.loads(said)
        variables = ("AWS_ENDPOINT_URL", "STUDYSYNC_TEST_ICEBERG")
        with contextlib.ExitStack() as stack:
            proxies = [stack.enter_context(DelayingProxy(os.environ[name].removeprefix("http://"), DELAY_SECS)) for name in variables]
            os.environ |= {name: proxy.address for name, proxy in zip(variables, proxies)}
            os.environ["STUDYSYNC_WAREHOUSE_EXTENSION_DIRECTORY"] = os.environ["STUDYSYNC_TEST_EXTENSIONS"]
            os.environ["STUDYSYNC_ICEBERG_CREDENTIAL"] = f"{os.environ['AWS_ACCESS_KEY_ID']}:{os.environ['AWS_SECRET_ACCESS_KEY']}"
            yield proxies
    finally:
        process.stdin.close()
        process.wait()
        os.environ.clear()
        os.environ |= before


def measure_catalogs(setting, table):
    wanted = os.environ.get("KINDS", "").split()
    with servers() as proxies:
        kinds = [kind for kind in KINDS if (proxies or not kind.needs_servers) and (not wanted or kind.name in wanted)]
        if setting.rows:
            load(setting, table, kinds, proxies or [])
        for proxy in proxies or []:
            proxy.delay_secs = 0
        for kind in kinds if NIGHTS else []:
            if kind.unmaintained_nights is not None:
                year(setting, table, kind, min(NIGHTS, kind.unmaintained_nights), False, proxies or [])
            year(setting, table, kind, NIGHTS, kind.unmaintained_nights is not None, proxies or [])


def load(setting, table, kinds, proxies):
    """The same rows into each kind, then the same nights."""
    with setting.service(setting.rows, days_of(setting.rows)) as service:
        sides = {kind.name: KindSide(setting, kind, service) for kind in kinds}
        loads, requests, nights = measure.alternate(setting.rounds, {name: counted(side.first_load, proxies) for name, side in sides.items()}), {}, {name: [] for name in sides}
        for side in sides.values():
            side.run("sync", "--json")
        for seed in range(1, setting.rounds + 1):
            service.control("POST", "clock", {"advance_ms": DAY_MS})
            service.control("POST", "changes", {"seed": seed, **LOADED_NIGHT})
            for name, side in sides.items():
                nights[name].append(counted(side.sync, proxies)())
                measure.tell(f"  night {seed}: {name}: {nights[name][-1].wall_secs:.2f} s, {nights[name][-1].requests}")
        for kind in kinds:
            side, first, night = sides[kind.name], loads[kind.name], nights[kind.name]
            size, query = json.loads(side.tool("size").stdout), side.query()
            secs = median(first)
            table.add(Row(f"catalogs load {kind.name}", f"backfill of {setting.rows:,} answers, answers a second: {kind.title}", "", setting.rows / secs, None, False,
                          f"{secs:.1f} s ({measure.spread(first)}), {size['bytes'] / MIB:.0f} MiB, {size['files']} files", f"requests: {first[-1].requests}"))
            table.add(Row(f"catalogs night {kind.name}", f"sync of a night among {setting.rows:,} answers, seconds: {kind.title}", "", median(night), None, True,
                          f"{measure.spread(night)} s; NPS by month {query:.2f} s", f"requests: {night[-1].requests}"))


def counted(run, proxies):
    """Runs with the number of requests by method."""
    def of_run():
        for proxy in proxies:
            proxy.take_requests()
        cost = run()
        cost.requests = [methods(proxy.take_requests()) for proxy in proxies]
        return cost
    return of_run


def methods(requests):
    found = {}
    for method, _ in requests:
        found[method] = found.get(method, 0) + 1
    return found


def year(setting, table, kind, count, is_maintained, proxies):
    """Nights with new answers, edits and deletions. Snapshots of the last week are kept; a day takes as long as a night's sync."""
    way = "weekly maintenance" if is_maintained else "no maintenance"
    with setting.service(YEAR_ROWS, YEAR_DAYS) as service:
        side = KindSide(setting, kind, service, archive=False)
        side.first_load()
        side.run("sync", "--json")
        begun, nights, maintained, shown = [], [], [], {}
        for night in range(1, count + 1):
            service.control("POST", "clock", {"advance_ms": DAY_MS})
            service.control("POST", "changes", {"seed": night, **NIGHT})
            begun.append(time.time())
            nights.append(counted(side.sync, proxies)())
            if is_maintained and night % WEEK == 0:
                maintained.append(side.tool("maintain", time.time() - begun[-WEEK]).wall_secs)
            if night in SHOWN or night == count:
                shown[night] = {"sync_secs": median(nights[-WEEK:]), "sync_cpu_secs": median(nights[-WEEK:], "cpu_secs"), "query_secs": side.query(), "requests": nights[-1].requests, **json.loads(side.tool("size").stdout)}
                measure.tell(f"  {kind.name}, {way}, night {night}: {shown[night]}")
    last, cost = shown[count], f", {sum(maintained) / len(maintained):.1f} s a maintenance" if maintained else ""
    table.add(Row(f"catalogs year {kind.name}{' maintained' if is_maintained else ''}", f"sync after {count} nights with {way}, seconds: {kind.title}", "", last["sync_secs"], None, True,
                  f"{last['files']} files, {last['bytes'] / MIB:.0f} MiB, {last['snapshots']} snapshots, NPS by month {last['query_secs']:.2f} s{cost}", json.dumps(shown)))
