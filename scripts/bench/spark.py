"""Runs examples/iceberg/nps_spark.py, and compares its figures with those of the program: spark.py SEGMENTS.csv MONTHS.csv [ARGUMENT...]"""

import collections
import csv
import pathlib
import runpy
import sys

JOB = pathlib.Path(__file__).parents[2] / "examples" / "iceberg" / "nps_spark.py"


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def main(segments, months, *arguments):
    sys.argv[1:] = arguments
    found = runpy.run_path(str(JOB))["main"]().collect()
    tallies = {(str(row.month), row.segment or "", row.responses, row.promoters, row.detractors) for row in found}
    expected = {(row["month"], row["segment"], *(int(row[name]) for name in ("responses", "promoters", "detractors"))) for row in rows(segments)}
    by_month = collections.defaultdict(lambda: [0, 0])
    for row in found:
        by_month[str(row.month)][0] += row.responses
        by_month[str(row.month)][1] += row.promoters - row.detractors
    view = {row["month"]: (int(row["responses"]), float(row["nps"])) for row in rows(months)}
    differing = [month for month in by_month.keys() | view.keys() if month not in view or by_month[month][0] != view[month][0]
                 or abs(100 * by_month[month][1] / by_month[month][0] - view[month][1]) > 1e-9]
    if tallies != expected or differing:
        sys.exit(f"Spark and the program differ: {sorted(tallies ^ expected)[:4]}, months {differing[:4]}")
    print(f"the program has the same figures: {len(found)} of months and segments, {len(view)} of months, {sum(row.responses for row in found)} NPS answers")


if __name__ == "__main__":
    main(*sys.argv[1:])
