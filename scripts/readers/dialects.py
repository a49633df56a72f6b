"""Writes the views of studysync in the SQL of other engines, from examples/parquet_views.sql: `dialects.py write`.

`dialects.py check` exits with 1 if a written file is not what this would write. sqlglot translates; the rules below are for what it leaves as
it is in DuckDB. scripts/readers/lakes.py compares the views with those of DuckDB.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples/parquet_views.sql"
FILES = {"duckdb": "examples/iceberg/views_duckdb.sql", "spark": "examples/iceberg/views_spark.sql", "postgres": "examples/postgres/views.sql"}
HEADERS = {
    "duckdb": """\
-- The views of studysync for DuckDB, over tables in an Iceberg catalog. Written by scripts/readers/dialects.py.
--
-- Run this in each session, after the catalog is attached: ATTACH 'WAREHOUSE' AS lake (TYPE iceberg, ...). If the namespace is not
-- studysync, replace it. Days, weeks and months are UTC.
-- DuckDB 1.5.5 estimates negative numbers of rows for some ranges; joins and unions of these would end with an internal error.
SET disabled_optimizers = 'statistics_propagation';
""",
    "spark": """\
-- The views of studysync for Apache Spark 3.5 or newer. Written by scripts/readers/dialects.py from the views of DuckDB.
--
-- Run this in each session, after `USE catalog.namespace` names the tables: the views are temporary, and some are
-- cached, so `CLEAR CACHE` and run this again after a sync. It needs spark.sql.codegen.wholeStage = false, since Spark takes minutes to compile
-- code for them. Days, weeks and months are UTC.
""",
    "postgres": """\
-- The views of studysync for PostgreSQL 14 or newer. Written by scripts/readers/dialects.py from the views of DuckDB.
--
-- Run this once, and again after an update of studysync: psql -f views.sql. If the tables are not in the schema studysync, replace it
-- in the next three lines. Days, weeks and months are UTC.
DROP SCHEMA IF EXISTS studysync_views CASCADE;
CREATE SCHEMA studysync_views;
SET search_path = studysync_views, studysync;
""",
}
# Views that are not translated, and why. Views that read them are left out as well.
LEFT_OUT = {
    "duckdb": {},
    "spark": {
        "open_answers": "Spark does not normalize texts",
        "untrusted": "it lists the keys of JSON objects",
    },
    "postgres": {
        "question_scales": "regular expressions of PostgreSQL have no classes of Unicode",
        "response_versions": "PostgreSQL has no structs without a declared type",
        "theme_versions": "PostgreSQL has no structs without a declared type",
        "session_stages": "it takes lists of a window apart",
        "open_answers": "regular expressions of PostgreSQL have no classes of Unicode",
        "untrusted": "its functions for JSON fail for texts that are no JSON",
    },
}

# The views that people use most, and those that they read: others have not been tried in Spark.
USED_IN_SPARK = """
    time_zone_offsets current_responses current_questions question_versions question_scales survey_question_sets answer_versions current_choices
    choice_share sessions survey_funnel session_stages response_rates nps_answers nps_by_day nps_by_week nps_by_month nps_by_week_per_question
    nps_per_question daily_breakdown
""".split()
# Views with many steps that take lists apart. Spark would replace each name by its expression, step by step, and expressions double.
# It does not look through a limit.
STEPS = ("question_scales", "answer_versions", "session_stages")


def defined_views():
    """The views with their comments: name, text before the statement, and SQL. Tables are views over files there."""
    found = re.findall(r'((?:^--[^\n]*\n)+)CREATE OR REPLACE VIEW "(\w+)" AS\n(.*?);\n', SOURCE.read_text(), re.S | re.M)
    return [(name, comment, sql) for comment, name, sql in found if not sql.startswith("FROM query(")]


def described():
    """The types of the columns of tables and views, by name."""
    import duckdb
    connection = duckdb.connect()
    connection.execute(SOURCE.read_text())
    found = {}
    for table, column, kind in connection.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'memory' AND schema_name = 'main' "
            "ORDER BY table_name, column_index").fetchall():
        found.setdefault(table, {})[column] = kind
    views = {name for name, _, _ in defined_views()}
    # Files have one more column, the partition.
    return {table: columns if table in views else {name: kind for name, kind in columns.items() if kind != "DATE"} for table, columns in found.items()}


def call(name, *arguments):
    from sqlglot import exp
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def sql_of(node):
    return node.sql("duckdb", comments=False)


def without_qualify(select):
    """QUALIFY as the condition of an outer query."""
    from sqlglot import exp
    condition = select.args.pop("qualify").this
    columns = [exp.column(projection.alias_or_name, "qualified") for projection in select.expressions]
    select.append("expressions", exp.alias_(condition, "is_kept"))
    windows = select.args.get("windows")
    outer = exp.select(*columns).from_(exp.Subquery(this=select.copy(), alias=exp.TableAlias(this=exp.to_identifier("qualified")))).where(
        exp.column("is_kept", "qualified"))
    del windows
    return outer


def by_position(union):
    """UNION ALL BY NAME with the columns of both sides in the order of the first."""
    from sqlglot import exp
    left, right = union.left, union.right
    named = {projection.alias_or_name: projection for projection in right.selects}
    order = [projection.alias_or_name for projection in left.selects]
    missing = [name for name in named if name not in order]
    assert isinstance(right, exp.Select) and not missing, f"columns of one side only: {missing}"
    right.set("expressions", [named[name] if name in named else exp.alias_(exp.null(), name) for name in order])
    union.set("by_name", False)
    return union


def place_of(bracket):
    """The place in a list, from 1: sqlglot counts whole numbers from 0."""
    from sqlglot import exp
    [index] = bracket.expressions
    return exp.Literal.number(int(index.sql()) + 1) if index.is_int else index


UUID = "^[{]?[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}[}]?$"


def common(node):
    """Replaces what neither engine has."""
    from sqlglot import exp
    if isinstance(node, exp.Select) and node.args.get("qualify"):
        return without_qualify(node)
    if isinstance(node, exp.SetOperation) and node.args.get("by_name"):
        return by_position(node)
    if isinstance(node, exp.Array) and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Comprehension):
        return node.expressions[0]
    if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.Max):
        return node.this
    if isinstance(node, exp.AnyValue):
        return exp.Max(this=node.this)
    if isinstance(node, exp.Sum) and isinstance(node.this, exp.Order):
        return exp.Sum(this=node.this.this)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Cast) and node.this.is_type("uuid"):
        text = node.this.this
        is_uuid = exp.RegexpLike(this=text.copy(), expression=exp.Literal.string(UUID))
        return exp.Case().when(is_uuid, exp.Lower(this=call("translate", text, exp.Literal.string("{}"), exp.Literal.string(""))))
    return node


def for_spark(node):
    """Replaces one expression of DuckDB by that of Spark."""
    from sqlglot import exp
    name = node.name.lower() if isinstance(node, exp.Anonymous) else None
    if isinstance(node, exp.Comprehension):
        variable, values = node.expression, node.args["iterator"]
        if node.args.get("condition"):
            values = exp.ArrayFilter(this=values, expression=exp.Lambda(this=node.args["condition"], expressions=[variable]))
        if sql_of(node.this) == sql_of(variable):
            return values
        return exp.Transform(this=values, expression=exp.Lambda(this=node.this, expressions=[variable]))
    # The views only count the elements of lists, and not letters.
    if isinstance(node, (exp.ArraySize, exp.Length)):
        return call("array_size", node.this)
    if name == "epoch_us":
        return call("timestampdiff", exp.var("MICROSECOND"), exp.cast(exp.Literal.string("1970-01-01 00:00:00"), "timestamp"), *node.expressions)
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1 and not node.expressions[0].is_string:
        place = place_of(node)
        return call("try_element_at", node.this, place if place.is_int else exp.cast(place, "int"))
    if isinstance(node, exp.In) and node.args.get("query") and isinstance(node.parent, exp.Alias) and node.parent.parent.args.get("group"):
        # Spark plans a subquery wrongly beside aggregates, and not in one.
        return exp.Max(this=node.copy())
    if isinstance(node, exp.Window) and isinstance(node.this, exp.Filter):
        found, condition = node.this.this, node.this.expression.this
        value = exp.Literal.number(1) if isinstance(found.this, exp.Star) else found.this
        found.set("this", exp.Case().when(condition, value))
        node.set("this", found)
        return node
    if isinstance(node, exp.RegexpReplace) and isinstance(node.args.get("replacement"), exp.Literal):
        modifiers = node.args["modifiers"].name.replace("g", "") if node.args.get("modifiers") else ""
        prefix = f"(?{modifiers})" if modifiers else ""
        return call("regexp_replace", node.this, exp.Literal.string(prefix + node.expression.name),
                    exp.Literal.string(re.sub(r"\\(\d)", r"$\1", node.args["replacement"].name)))
    if isinstance(node, exp.RegexpFullMatch):
        return exp.RegexpLike(this=node.this, expression=exp.Literal.string(f"^(?:{node.expression.name})$"))
    if name == "json_valid":
        return exp.Not(this=exp.Is(this=call("from_json", *node.expressions, exp.Literal.string("array<string>")), expression=exp.null()))
    if isinstance(node, exp.JSONExtractScalar) or name == "json_extract_string":
        text = node.this if isinstance(node, exp.JSONExtractScalar) else node.expressions[0]
        return call("from_json", text, exp.Literal.string("array<string>"))
    if name in ("list_position", "array_position"):
        return call("array_position", *node.expressions)
    if isinstance(node, exp.ArrayOverlaps):
        return call("arrays_overlap", node.this, node.expression)
    if isinstance(node, exp.ArrayAgg) and isinstance(node.this, exp.Order):
        [order] = node.this.expressions
        pairs = call("array_sort", call("collect_list", call("struct", exp.alias_(order.this.copy(), "place"), exp.alias_(node.this.this.copy(), "value"))))
        return exp.Transform(this=pairs, expression=exp.Lambda(this=exp.Dot(this=exp.to_identifier("pair"), expression=exp.to_identifier("value")),
                                                               expressions=[exp.to_identifier("pair")]))
    if isinstance(node, exp.Select) and any(isinstance(projection.unalias(), exp.Explode) for projection in node.expressions):
        return zipped(node)
    return node


def zipped(select):
    """Lists that are unnested beside each other as one list of structs: Spark unnests one list."""
    from sqlglot import exp
    lists = [projection for projection in select.expressions if isinstance(projection.unalias(), exp.Explode)]
    if len(lists) == 1:
        return select
    others = [projection for projection in select.expressions if projection not in lists]
    filled = [exp.Coalesce(this=one.unalias().this.copy(), expressions=[exp.Array()]) for one in lists]
    row = exp.alias_(exp.Explode(this=call("arrays_zip", *filled)), "unnested")
    columns = [exp.column(other.alias_or_name, "zipped") for other in others]
    columns += [exp.alias_(exp.Dot(this=exp.column("unnested", "zipped"), expression=exp.to_identifier(str(at), quoted=True)), one.alias)
                for at, one in enumerate(lists)]
    inner = select.copy()
    inner.set("expressions", [*(other.copy() for other in others), row])
    order = [projection.alias_or_name for projection in select.expressions]
    columns.sort(key=lambda column: order.index(column.alias_or_name))
    return exp.select(*columns).from_(exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("zipped"))))


def for_postgres(node):
    """Replaces one expression of DuckDB by that of PostgreSQL."""
    from sqlglot import exp
    name = node.name.lower() if isinstance(node, exp.Anonymous) else None
    if isinstance(node, exp.Max) and isinstance(node.this, exp.Struct):
        # The last text: a struct of a time and a text in DuckDB.
        at, text = (field.expression for field in node.this.expressions)
        return first_of(text, [at, text], is_descending=True)
    if isinstance(node, (exp.ArgMax, exp.ArgMin)):
        keys = node.expression.expressions if isinstance(node.expression, exp.Tuple) else [node.expression]
        return first_of(node.this, keys, isinstance(node, exp.ArgMax))
    if isinstance(node, exp.Filter) and isinstance(node.this, exp.Bracket):
        # The condition belongs to the aggregate, not to its first element.
        [aggregates] = node.this.find_all(exp.ArrayAgg)
        first = node.this
        aggregates.replace(exp.Filter(this=aggregates.copy(), expression=node.expression))
        return first
    if isinstance(node, exp.Dot) and node.expression.name == "text":
        return node.this
    if name == "epoch_us":
        seconds = exp.Extract(this=exp.var("EPOCH"), expression=node.expressions[0])
        return exp.cast(exp.Mul(this=seconds, expression=exp.Literal.number(1000000)), "bigint")
    if name == "nfc_normalize":
        return call("normalize", node.expressions[0], exp.var("NFC"))
    if isinstance(node, exp.Select) and node.args.get("group") and node.args["group"].args.get("all"):
        keys = [projection.unalias().copy() for projection in node.expressions
                if not projection.find(exp.AggFunc) and not isinstance(projection.unalias(), (exp.Null, exp.Literal))]
        node.set("group", exp.Group(expressions=keys))
    return node


def first_of(value, keys, is_descending):
    """The value of the row with the greatest or least keys."""
    from sqlglot import exp
    order = exp.Order(this=value.copy(), expressions=[exp.Ordered(this=key.copy(), desc=is_descending, nulls_first=False) for key in keys])
    return exp.Bracket(this=exp.Paren(this=exp.ArrayAgg(this=order)), expressions=[exp.Literal.number(0)])


RULES = {"spark": for_spark, "postgres": for_postgres}


def translated(name, sql, dialect, schema):
    import sqlglot
    from sqlglot import exp
    from sqlglot.optimizer.annotate_types import annotate_types
    from sqlglot.optimizer.qualify import qualify
    tree = sqlglot.parse_one(sql, read="duckdb")
    tree = qualify(tree, schema=schema, dialect="duckdb", quote_identifiers=False, identify=False, validate_qualify_columns=False)
    tree = annotate_types(tree, schema=schema, dialect="duckdb")
    for rule in (common, RULES[dialect]):
        # From the inside to the outside, so that a rule sees what others have made.
        for node in reversed(list(tree.walk())):
            made = rule(node)
            if made is not node:
                tree = made if node is tree else tree
                node.replace(made)
    if dialect == "spark" and name in STEPS:
        for step in tree.ctes:
            if isinstance(step.this, exp.Select):
                step.this.limit(2147483647, copy=False)
    return tree.sql(dialect, pretty=True, comments=False, max_text_width=110)


def script(dialect):
    schema, left_out = described(), dict(LEFT_OUT[dialect])
    views = {name for name, _, _ in defined_views()}
    text = HEADERS[dialect]
    if dialect == "duckdb":
        text += "\n" + "".join(f"CREATE OR REPLACE VIEW {table} AS FROM lake.studysync.{table};\n" for table in schema if table not in views)
    if dialect == "postgres":
        text += "\n-- The tables, so that one schema has all.\n"
        text += "".join(f"CREATE VIEW {table} AS SELECT * FROM {table};\n" for table in schema if table not in views)
    for name, comment, sql in defined_views():
        missing = next((other for other in left_out if re.search(rf"\b(FROM|JOIN) {other}\b", sql)), None)
        if missing and name not in left_out:
            left_out[name] = f"it reads {missing}"
        if dialect == "spark" and name not in USED_IN_SPARK:
            left_out.setdefault(name, "it has not been tried")
        if name in left_out:
            continue
        kind = {"duckdb": "CREATE OR REPLACE VIEW", "spark": "CREATE OR REPLACE TEMPORARY VIEW", "postgres": "CREATE VIEW"}[dialect]
        text += f"\n{comment}{kind} {name} AS\n{sql if dialect == 'duckdb' else translated(name, sql, dialect, schema)};\n"
        if dialect == "spark" and name in (*STEPS, "question_versions"):
            text += f"CACHE LAZY TABLE {name};\n"
    return text + "".join(f"\n-- Left out: {name}, because {why}." for name, why in left_out.items()) + ("\n" if left_out else "")


def statements(dialect):
    """The statements of the written file."""
    text = re.sub(r"^--[^\n]*\n", "", (ROOT / FILES[dialect]).read_text(), flags=re.M)
    return [statement.strip() for statement in text.split(";\n") if statement.strip()]


def names(dialect):
    """The views of the written file, without those of tables."""
    views = {name for name, _, _ in defined_views()}
    return [name for name in re.findall(r"^CREATE (?:OR REPLACE )?(?:TEMPORARY )?VIEW (\w+)", (ROOT / FILES[dialect]).read_text(), re.M) if name in views]


def main():
    [action] = sys.argv[1:]
    for dialect, path in FILES.items():
        text, file = script(dialect), ROOT / path
        if action == "write":
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        elif file.read_text() != text:
            sys.exit(f"error: {path} is not up to date\nhint: run scripts/readers/dialects.py write")
        print(f"{path}: {len(names(dialect))} views of {len(defined_views())}")


if __name__ == "__main__":
    main()
