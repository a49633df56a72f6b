"""Reads a DuckDB file with the address that docs/bi/superset.md gives: lists tables, views and columns, and asks a view."""

import sys

from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import DBAPIError

engine = create_engine(f"duckdb:///{sys.argv[1]}?access_mode=read_only")
inspector = inspect(engine)
tables, views = inspector.get_table_names(), inspector.get_view_names()
assert "responses" in tables, tables
assert "nps_by_week" in views, views
columns = {column["name"]: column for column in inspector.get_columns("responses")}
assert "session" in columns["response_group_uid"]["comment"], columns["response_group_uid"]
with engine.connect() as connection:
    weeks = connection.execute(text("SELECT week, responses, nps FROM nps_by_week ORDER BY week")).fetchall()
    assert weeks, "no weeks"
    try:
        connection.execute(text("CREATE TABLE written (a INTEGER)"))
    except DBAPIError:
        pass
    else:
        raise AssertionError("the file could be written")
print(f"superset: {len(tables)} tables, {len(views)} views, {len(weeks)} weeks of NPS")
