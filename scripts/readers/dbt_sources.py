"""Keeps the descriptions of examples/dbt/models/sources.yml equal to the data dictionary.

`dbt_sources.py write SCHEMA` fills in what each table and column means and adds missing views, `dbt_sources.py check SCHEMA [TARGET]` exits with
1 where the file says something else. SCHEMA is what `studysync schema --format json` prints. With TARGET, dbt's folder of that name, it also
checks what `dbt docs generate` made. Which other tables there are and how they are tested is written by hand. Needs PyYAML, which dbt brings.
"""

import json
import pathlib
import sys

import yaml

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "examples/dbt/models/sources.yml"
HEADER = "# Descriptions come from the data dictionary: scripts/readers/dbt_sources.py write. Tables and tests are written by hand.\n"


def described(sources, dictionary):
    """The sources with every column of the dictionary, in its order and in its words."""
    (source,) = sources["sources"]
    named = {table["name"] for table in source["tables"]}
    views = [name for name, entry in dictionary.items() if entry["kind"] == "view" and name not in named]
    # A view has no column with the time of its last load.
    source["tables"] += [{"name": name, "freshness": None} for name in views]
    for table in source["tables"]:
        entry = dictionary[table["name"]]
        kept = {column["name"]: column for column in table.pop("columns", [])}
        unknown = kept.keys() - {column["name"] for column in entry["column"]}
        assert not unknown, f"{table['name']} has no columns {unknown}"
        table["description"] = "\n".join([entry["comment"], *entry.get("notes", [])])
        table["columns"] = []
        for column in entry["column"]:
            tests = {name: value for name, value in kept.get(column["name"], {}).items() if name not in ("name", "description")}
            table["columns"].append({"name": column["name"], "description": column["comment"], **tests})
    return sources


def as_text(sources):
    return HEADER + yaml.safe_dump(sources, sort_keys=False, allow_unicode=True, width=1000)


def check_docs(target, sources):
    """What `dbt docs generate` shows: every source with its columns and words, and exposures that lead to them."""
    manifest = json.loads((target / "manifest.json").read_text())
    catalog = json.loads((target / "catalog.json").read_text())
    (source,) = sources["sources"]
    for table in source["tables"]:
        name = f"source.studysync_example.{source['name']}.{table['name']}"
        assert manifest["sources"][name]["description"] == table["description"], name
        found = catalog["sources"][name]["columns"].keys()
        missing = {column["name"] for column in table["columns"]} - set(found)
        assert not missing, f"{name}: the warehouse has no {missing}"
        assert len(found) == len(table["columns"]), f"{name}: not described: {set(found)}"
    described_models = [model["description"] for model in manifest["nodes"].values() if model["resource_type"] == "model"]
    assert all(described_models) and len(described_models) == 3, "models without a description"
    exposures = manifest["exposures"].values()
    assert len(exposures) == 2 and all(exposure["depends_on"]["nodes"] for exposure in exposures), "exposures"
    print(f"dbt docs: {len(source['tables'])} sources, 3 models and {len(exposures)} exposures described")


def main():
    what, schema, *target = sys.argv[1:]
    dictionary = {entry["name"]: entry for entry in json.loads(pathlib.Path(schema).read_text())}
    stands = SOURCES.read_text()
    sources = described(yaml.safe_load(stands), dictionary)
    if what == "write":
        return SOURCES.write_text(as_text(sources))
    if stands != as_text(sources):
        sys.exit(f"{SOURCES} says something else than the data dictionary: dbt_sources.py write {schema}")
    if target:
        check_docs(pathlib.Path(target[0]), sources)


if __name__ == "__main__":
    main()
