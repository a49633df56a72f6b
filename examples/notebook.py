"""A first look at the answers, over the Parquet files: `python notebook.py [FOLDER]`, or cell by cell in an editor.

Needs the package duckdb and nothing else. Parquet can be read while studysync writes.
"""

# %% The tables and views, as in the DuckDB file
import pathlib
import sys

import duckdb

folder = sys.argv[1] if len(sys.argv) > 1 else "warehouse-parquet"
script = pathlib.Path(__file__).with_name("parquet_views.sql").read_text(encoding="utf-8")
quoted = folder.replace("'", "''")
db = duckdb.connect()
db.execute(script.replace("'warehouse-parquet'", f"'{quoted}'", 1))

# %% How do people like us, and how sure is that?
db.sql("SELECT week, responses, round(nps, 1) AS nps, round(nps_low, 1) AS low, round(nps_high, 1) AS high "
       "FROM nps_by_week ORDER BY week").show()

# %% Which statements do people agree with?
db.sql("SELECT survey_name, question_text, answers, round(100 * top_two_share) AS percent, scale_source "
       "FROM likert_top_two ORDER BY top_two_share DESC LIMIT 10").show()

# %% The words of those who would not recommend us: a relation goes on to pandas (.df()), Polars (.pl()) or Arrow (.arrow())
words = db.sql("SELECT said.created_at, score.score, said.answer_text FROM nps_answers AS score "
               "JOIN current_responses AS said USING (response_group_uid) "
               "WHERE score.score <= 6 AND said.question_type = 'OPEN' AND NOT said.is_skipped "
               "ORDER BY said.created_at DESC LIMIT 10")
words.show()

# %% What was known a week ago, against today
(newest,) = db.execute("SELECT max(_synced_at) FROM responses").fetchone()
db.execute("SET VARIABLE moment = ?::TIMESTAMP - INTERVAL 7 DAY", [newest])
db.sql("SELECT (SELECT count(*) FROM responses_as_of(getvariable('moment'))) AS answers_then, "
       "(SELECT count(*) FROM current_responses) AS answers_now").show()
