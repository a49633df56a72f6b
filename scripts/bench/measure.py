"""Runs processes and says what they cost. Knows nothing of what they do."""

import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time


@dataclasses.dataclass
class Cost:
    wall_secs: float
    cpu_secs: float
    peak_rss_bytes: int
    stdout: str


def run(command, accepted=(0,), cwd=None, env=None):
    """One process to its end: wall time, user and system time of it and what it waited for, and its peak memory."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=cwd, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        wall_secs = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode not in accepted:
            sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{err.read()[-2000:]}")
        return Cost(wall_secs, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, out.read())


def alternate(rounds, sides):
    """Runs each side once a round, so that what else the machine does meets all of them. `sides` is a dict of functions that give a
    Cost; the answer has for each a list of Costs, one a round."""
    costs = {name: [] for name in sides}
    for at in range(rounds):
        # Every second round runs in reverse order, so that no side always follows the same one.
        for name in list(sides)[:: 1 if at % 2 == 0 else -1]:
            costs[name].append(sides[name]())
            tell(f"  round {at + 1} of {rounds}: {name}: {costs[name][-1].wall_secs:.2f} s")
    return costs


def median(costs, field="wall_secs"):
    return statistics.median(getattr(cost, field) for cost in costs)


def spread(costs, field="wall_secs"):
    values = [getattr(cost, field) for cost in costs]
    return f"{min(values):.3g} to {max(values):.3g}"


def tell(text):
    print(text, file=sys.stderr, flush=True)
