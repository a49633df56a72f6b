"""The sections of the benchmark: each measures some rows of the table and needs nothing that another one left."""

import dataclasses
import pathlib
import sys

from service import Service, days_of, report_of

from . import answers, backfill, bucket, catalogs, compare, erase, latency, nightly, replay, rescan, small, windows


@dataclasses.dataclass
class Setting:
    program: pathlib.Path
    floor: pathlib.Path
    rounds: int
    rows: int
    big_rows: int
    threads: int
    folder: pathlib.Path
    # The kind of the sandbox's data: "smooth" or "rough".
    data: str = "smooth"

    def days(self):
        return days_of(self.rows)

    def service(self, rows, days, *arguments):
        return Service(self.program, rows, days, "--data", self.data, *arguments)

    def require_same_rows(self, cost, other, rows):
        """A side that did less is no measure. Rough data has records without a key, keys that come twice, and records at the very end
        of what is asked for: of those each side makes what it will."""
        ours = report_of(cost)["streams"]["responses"]
        least = most = ours["inserted"]
        if self.data == "rough":
            least, most = ours["inserted"] - ours["outside_window"], ours["rows_read"]
        if not least <= rows <= most:
            sys.exit(f"{other} has {rows} rows, studysync {ours}")


# These run once for smooth and once for rough data.
ALL = {
    "memory": backfill.memory,
    "wide": backfill.wide,
    "rescan": rescan.measure_rescan,
    "latency": latency.measure_latency,
    "small": small.measure_starts,
    "views": answers.measure_views,
    "replay": replay.measure_replay,
    "nightly": nightly.measure_nightly,
    "bucket": bucket.measure_bucket,
    "erase": erase.measure_erase,
    "windows": windows.measure_windows,
    "compare": compare.measure_others,
}
# These measure both kinds together.
BOTH = {"backfill": backfill.without_flags, "flags": backfill.with_all_flags}
# Measured only if named: takes hours.
NAMED = {"catalogs": catalogs.measure_catalogs}
