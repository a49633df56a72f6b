"""Executes examples/answers.ipynb over both warehouses, and holds its numbers against SQL of its own over the tables.

Runs the cells in this process with IPython, as Jupyter's kernel does, but without a kernel: a cell that hangs then shows where.

`notebook.py PROGRAM FOLDER`: FOLDER holds `warehouse.duckdb`, `parquet` and the `studysync.toml` that they were written with. With the
packages of examples/requirements.txt.
"""

import faulthandler
import json
import os
import pathlib
import subprocess
import sys

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
NOTEBOOK = pathlib.Path("examples/answers.ipynb")
WANTED = "export"
# A cell takes a second.
SECONDS_MAX = 300
# The names of the notebook's tables, and SQL that computes the same numbers from the warehouse.
STANDS = "deleted_at IS NULL AND _vanished_at IS NULL"
QUESTIONS = {
    "came_in": f"""
        SELECT created_at::DATE::VARCHAR AS day, count(DISTINCT response_group_uid) AS sessions, count(*) AS answers
        FROM responses WHERE {STANDS} GROUP BY ALL ORDER BY day""",
    "nps": f"""
        SELECT date_trunc('week', created_at)::DATE::VARCHAR AS week, count(*) AS responses,
               100.0 * (count(*) FILTER (answer_number >= 9) - count(*) FILTER (answer_number <= 6)) / count(*) AS nps
        FROM responses WHERE {STANDS} AND question_type = 'NPS' AND answer_number = floor(answer_number)
            AND answer_number BETWEEN 0 AND 10 GROUP BY ALL ORDER BY week""",
    "changed": f"""
        SELECT survey_id, count(*) AS new_answers FROM responses
        WHERE {STANDS} AND survey_id IS NOT NULL GROUP BY ALL ORDER BY survey_id""",
}
DUMP = f"""
import json as _json
print("NUMBERS " + _json.dumps({{
    "came_in": came_in.astype({{"day": str}})[["day", "sessions", "answers"]].to_dict("records"),
    "nps": nps.astype({{"week": str}})[["week", "responses", "nps"]].to_dict("records"),
    "changed": changed.query("new_answers > 0")[["survey_id", "new_answers"]].to_dict("records"),
    "shares": float((choices["chosen"] / choices["answered"] - choices["share"]).abs().max()),
    "found": [len(found), int(found["answer"].str.contains("{WANTED}", case=False).sum())],
    "tables": [len(one) for one in (came_in, funnel, nps, choices, found, unhappy, changed)],
}}))
"""


class Shell(InteractiveShell):
    def enable_gui(self, gui=None):
        """Charts are pictures, so there is no window to enable."""


def execute(warehouse):
    """Runs every cell: the numbers, and how many charts there are."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    os.environ |= {"WAREHOUSE": str(warehouse), "WANTED": WANTED}
    shell = Shell.instance()
    shell.reset()
    home = pathlib.Path.cwd()
    os.chdir(NOTEBOOK.parent)
    charts, text = 0, ""
    for source in ["%matplotlib inline", *(cell.source for cell in notebook.cells if cell.cell_type == "code"), DUMP]:
        faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
        with capture_output() as captured:
            result = shell.run_cell(source)
        faulthandler.cancel_dump_traceback_later()
        result.raise_error()
        charts += sum("image/png" in output.data for output in captured.outputs)
        text += captured.stdout
    os.chdir(home)
    (line,) = [line for line in text.splitlines() if line.startswith("NUMBERS ")]
    return json.loads(line.removeprefix("NUMBERS ")), charts


def ask(sql):
    command = [PROGRAM, "--config", FOLDER / "studysync.toml", "query", sql, "--format", "json", "--rows", "100000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def same(found, expected):
    """Whether rows are equal, and numbers that were divided to twelve digits."""
    rounded = lambda rows: [{name: round(value, 9) if isinstance(value, float) else value for name, value in row.items()} for row in rows]
    return rounded(found) == rounded(expected)


def main():
    stored = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(stored)
    assert not any(cell.get("outputs") for cell in stored.cells), "the notebook is kept without outputs"
    expected = {name: ask(sql) for name, sql in QUESTIONS.items()}
    for warehouse in (FOLDER / "warehouse.duckdb", FOLDER / "parquet"):
        numbers, charts = execute(warehouse)
        for name, rows in expected.items():
            assert same(numbers[name], rows), f"{warehouse.name}, {name}: {numbers[name][:3]} and not {rows[:3]}"
        assert charts == 3, f"{warehouse.name}: {charts} charts"
        assert all(numbers["tables"]), f"{warehouse.name}: empty tables: {numbers['tables']}"
        assert numbers["shares"] < 1e-12 and numbers["found"][0] == numbers["found"][1], numbers
    print(f"the notebook: {sum(map(len, expected.values()))} rows equal to SQL, over both warehouses")


if __name__ == "__main__":
    main()
