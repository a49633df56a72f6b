"""The rows of the table: kept as JSON beside the page, so that sections can be measured one by one, and written as Markdown."""

import dataclasses
import json
import os
import pathlib
import platform
import subprocess
import time


@dataclasses.dataclass
class Row:
    """One line: what was done, what is to be reached, and what came out. `value` is in the unit of `limit`; `at_most` says on which
    side of it is good. Without a limit nothing is to be reached."""

    key: str
    work: str
    goal: str
    value: float
    limit: float | None
    at_most: bool
    ours: str
    other: str

    def verdict(self):
        if self.limit is None:
            return ""
        return "met" if self.is_met() else "**not met**"

    def is_met(self):
        return self.value <= self.limit if self.at_most else self.value >= self.limit


DATA = ("smooth", "rough")


class Results:
    """The rows by key: what is measured, and what came out on smooth and on rough data."""

    def __init__(self, path, conditions):
        self.path = pathlib.Path(path)
        self.rows = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.conditions = conditions
        # The kind of data in the present measurement.
        self.data = "smooth"

    def add(self, row):
        load = os.getloadavg()[0]
        # The benchmark itself uses about two processors. A higher load shows other activity.
        self.rows.setdefault(row.key, {})[self.data] = {
            **dataclasses.asdict(row), "verdict": row.verdict(), "load": round(load, 1), "date": time.strftime("%Y-%m-%d"), **self.conditions}
        self.path.write_text(json.dumps(self.rows, indent=1, ensure_ascii=False) + "\n")
        print(f"{row.verdict().strip('*'):8}{row.value:8.2f}  {row.goal:12} {self.data}: {row.work} | {row.ours} | {row.other}", flush=True)


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}"


def versions(program):
    def said(*command):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    import duckdb
    commit = said("git", "rev-parse", "--short", "HEAD")
    return f"{said(program, '--version')} ({commit}), {said('rustc', '--version')}, DuckDB {duckdb.__version__}, Python {platform.python_version()}"


def shown(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def write_markdown(results, template, path, machine_text, versions_text):
    """Fills the tables into the page: what stands around them is written by hand, in the template."""
    table = ["| work | goal | smooth | smooth: met? | rough | rough: met? | measured |", "|---|---|---|---|---|---|---|"]
    for row in results.rows.values():
        either = row.get("rough") or row["smooth"]
        if either["limit"] is None:
            continue
        cells = [cell for data in DATA for cell in ((shown(row[data]["value"]), row[data]["verdict"]) if data in row else ("", ""))]
        table.append(f"| {either['work']} | {either['goal']} | {' | '.join(cells)} | {either['date']} |")
    text = pathlib.Path(template).read_text()
    text = text.replace("{table}", "\n".join(table))
    pathlib.Path(path).write_text(text.replace("{machine}", machine_text).replace("{versions}", versions_text))
