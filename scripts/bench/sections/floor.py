"""Runs one of the floors (see floors.py) as a process."""

import json
import pathlib
import sys

import measure

FLOORS = pathlib.Path(__file__).parent.parent / "floors.py"


def run(kind, *arguments):
    """Its cost, without the start of Python and the loading of its modules."""
    cost = measure.run([sys.executable, FLOORS, kind, *map(str, arguments)])
    cost.wall_secs = json.loads(cost.stdout)["secs"]
    return cost
