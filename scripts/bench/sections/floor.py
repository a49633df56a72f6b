"""Runs one of the floors (see floors.py) as a process."""

import json
import pathlib
import sys

import measure

FLOORS = pathlib.Path(__file__).parent.parent / "floors.py"


def run(kind, *arguments):
    """Its cost, without the start of Python and the loading of its modules."""
    cost = measure.run([sys.executable, FLOORS, kind, *map(str, arguments)])
    said = json.loads(cost.stdout)
    cost.wall_secs, cost.cpu_secs = said["secs"], said["cpu_secs"]
    return cost
