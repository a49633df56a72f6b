"""The sections of the benchmark: each measures some rows of the table and needs nothing that another one left."""

import dataclasses
import pathlib

from service import Service, days_of

from . import answers, backfill, compare, erase, growth, latency, nightly, replay, rescan, rough, small


@dataclasses.dataclass
class Setting:
    program: pathlib.Path
    floor: pathlib.Path
    rounds: int
    rows: int
    big_rows: int
    threads: int
    folder: pathlib.Path
    # What the sandbox's data is like: "smooth" or "rough".
    data: str = "smooth"

    def days(self):
        return days_of(self.rows)

    def service(self, rows, days, *arguments):
        return Service(self.program, rows, days, "--data", self.data, *arguments)


# Measured on smooth and on rough data.
ALL = {
    "backfill": backfill.without_flags,
    "flags": backfill.with_all_flags,
    "memory": backfill.memory,
    "rescan": rescan.measure_rescan,
    "latency": latency.measure_latency,
    "small": small.measure_starts,
    "views": answers.measure_views,
    "replay": replay.measure_replay,
    "nightly": nightly.measure_nightly,
    "erase": erase.measure_erase,
    "growth": growth.measure_growth,
    "compare": compare.measure_others,
}
# Measured on both at once.
BOTH = {"rough": rough.measure_rough}
