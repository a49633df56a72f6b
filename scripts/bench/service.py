"""The sandbox as a process of its own, and what the program is pointed at it with."""

import json
import os
import pathlib
import shutil
import subprocess
import time
import urllib.request

import measure

KEY = "bench"
# The service's clock. No range includes its last day, so that all answers are settled.
NOW = "2026-01-31T00:00:00Z"
NOW_MS = 1_769_817_600_000
DAY_MS = 86_400_000
FLAGS = ["with_snapshots", "with_urls", "with_meta", "with_custom_metadata", "with_deleted_responses"]


class Service:
    def __init__(self, program, rows, days, *arguments):
        self.rows, self.days = rows, days
        self.from_ms = NOW_MS - days * DAY_MS
        self.to_ms = NOW_MS - DAY_MS
        self.from_date = time.strftime("%Y-%m-%d", time.gmtime(self.from_ms / 1000))
        self.process = subprocess.Popen(
            [program, "sandbox", "--api-key", KEY, "--responses", str(rows), "--days", str(days), "--now", NOW,
             "--frozen-clock", "--listen", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if "http://" not in line:
            raise SystemExit("the sandbox did not start")
        self.address = line.split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def cpu_secs(self):
        """What the process has taken until now, all threads."""
        # The process name may contain any character. After its closing bracket, user and system
        # time are fields 11 and 12, counted from 0.
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def control(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.address}/_sandbox/{path}", data=data, method=method, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return reply.read().decode()

    def log(self):
        return [json.loads(line) for line in self.control("GET", "log?since=0").splitlines()]


# Settings of local warehouses.
WAREHOUSES = {"duckdb": 'duckdb = "warehouse.duckdb"', "parquet": 'parquet = "parquet"'}


class Side:
    """A folder with a configuration, in which the program is run. A warehouse is a key of WAREHOUSES, or a line of the configuration."""

    def __init__(self, program, folder, service, flags=(), warehouses=("duckdb",), archive=True, more="", memory_mib=512):
        self.program, self.folder, self.service = program, pathlib.Path(folder), service
        self.toml = f"""
[service]
base_url = "{service.address}"
[streams.responses]
flags = {json.dumps(list(flags))}
since = "{service.from_date}"
{more}
[streams.surveys]
enabled = false
[streams.themes]
enabled = false
[warehouse]
{chr(10).join(WAREHOUSES.get(warehouse, warehouse) for warehouse in warehouses)}
memory_limit_mb = {memory_mib}
[archive]
path = "{'archive' if archive else 'none'}"
"""

    def clear(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "studysync.toml").write_text(self.toml)
        return self

    def run(self, *arguments, accepted=(0, 3)):
        os.sync()  # So that this side does not wait for the other side's writes.
        return measure.run([self.program, "--quiet", *arguments], accepted=accepted, cwd=self.folder,
                           env={**os.environ, "STUDYSYNC_API_KEY": KEY})

    def backfill(self, *arguments):
        return self.run("backfill", "--from", str(self.service.from_ms), "--to", str(self.service.to_ms), "--json", *arguments)

    def first_load(self, *arguments):
        self.clear()
        return self.backfill(*arguments)


def days_of(rows):
    """So many answers come in a day whatever the size: a longer history, not a busier service."""
    return max(2, rows // 2740)


def report_of(cost):
    """The JSON of a run."""
    return json.loads(cost.stdout.strip().splitlines()[-1])
