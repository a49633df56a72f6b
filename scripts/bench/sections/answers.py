"""The views, against SQL that a person would write for the same question."""

import time

import measure
from measure import Cost, median
from results import Row
from service import Side, days_of

NPS = """
SELECT date_trunc('week', created_at)::DATE AS week, count(*) AS responses,
       100.0 * (count(*) FILTER (answer_number >= 9) - count(*) FILTER (answer_number <= 6)) / count(*) AS nps,
       100 * stddev_samp(CASE WHEN answer_number >= 9 THEN 1 WHEN answer_number <= 6 THEN -1 ELSE 0 END) / sqrt(count(*)) AS standard_error
FROM responses
WHERE question_type = 'NPS' AND answer_number BETWEEN 0 AND 10 AND deleted_at IS NULL AND _vanished_at IS NULL
GROUP BY week ORDER BY week"""
DISTRIBUTION = """
SELECT question_id, answer_number::BIGINT AS value, count(*) AS answers, count(*) / sum(count(*)) OVER (PARTITION BY question_id) AS share
FROM responses
WHERE question_type = 'LIKERT' AND survey_id = {survey} AND answer_number = floor(answer_number) AND deleted_at IS NULL AND _vanished_at IS NULL
GROUP BY question_id, value ORDER BY question_id, value"""
# Queries are short, so each round repeats them.
TIMES = 5


def measure_views(setting, table):
    import duckdb
    rows = setting.big_rows or setting.rows
    with setting.service(rows, days_of(rows)) as service:
        side = Side(setting.program, setting.folder / "answers", service, archive=False)
        side.first_load()
    with duckdb.connect(str(side.folder / "warehouse.duckdb"), read_only=True, config={"threads": setting.threads}) as connection:
        survey = connection.execute("SELECT survey_id FROM likert_distribution GROUP BY 1 ORDER BY sum(answers) DESC LIMIT 1").fetchone()[0]
        pairs = {
            "nps": ("NPS by week", "SELECT week, responses, nps, standard_error FROM nps_by_week ORDER BY week", NPS),
            "distribution": ("one survey's distribution",
                             f"SELECT question_id, value, answers, share FROM likert_distribution WHERE survey_id = {survey} ORDER BY 1, 2",
                             DISTRIBUTION.format(survey=survey)),
        }
        for key, (work, view, plain) in pairs.items():
            if not equal(connection.execute(view).fetchall(), connection.execute(plain).fetchall()):
                raise SystemExit(f"{work}: the view and the plain SQL differ")
            costs = measure.alternate(setting.rounds, {"view": lambda: asked(connection, view), "plain": lambda: asked(connection, plain)})
            ours, other = median(costs["view"]), median(costs["plain"])
            table.add(Row(f"view {key}", f"{work} over {rows:,} answers, by the view", "≤ 1.2", ours / other, 1.2, True, f"{ours * 1000:.1f} ms",
                          f"hand-written SQL {other * 1000:.1f} ms"))


def asked(connection, sql):
    begun = time.perf_counter()
    for _ in range(TIMES):
        connection.execute(sql).fetchall()
    return Cost((time.perf_counter() - begun) / TIMES, 0, 0, "")


def equal(left, right):
    def same(one, other):
        return abs(one - other) < 1e-9 * max(1, abs(one)) if isinstance(one, float) and isinstance(other, float) else one == other
    return len(left) == len(right) and all(all(map(same, one, other)) for one, other in zip(left, right))
