"""Runs the jobs of examples/dagster_job.py for each exit code, and checks what the runs record. `check_dagster.py PROGRAM`

With the package dagster. Only the wait between retries is shorter.
"""

import importlib.util
import os
import sys

from dagster import DagsterEventType, DagsterInstance

from scenes import CODES, RESPONSES, Scenes, check

# By exit code of the run: whether Dagster's run succeeds, whether the asset is materialized, the
# result of the check, and the number of tries of the step.
EXPECTED = {
    0: (True, True, True, 1),
    1: (False, False, None, 4),
    2: (False, False, None, 1),
    3: (True, True, False, 1),
    4: (False, False, None, 1),
    5: (True, False, None, 1),
    6: (True, False, None, 1),
}


def load(scenes, code, folder):
    """The module for this folder."""
    path = scenes.root / f"dagster_{code}.py"
    path.write_text(scenes.example("dagster_job.py", folder).replace("delay=1200", "delay=0"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.definitions


def run(definitions, job, instance):
    return definitions.get_job_def(job).execute_in_process(instance=instance, raise_on_error=False)


def outcome(result):
    events = [event.event_type for event in result.all_events]
    checks = {one.check_name: one for one in result.get_asset_check_evaluations()}
    look = checks.get("nothing_to_look_at")
    tries = sum(
        event.step_key == "warehouse" and event.event_type in (DagsterEventType.STEP_START, DagsterEventType.STEP_RESTARTED)
        for event in result.all_events
    )
    check(look is None or look.severity.name == "WARN", "the check is no warning")
    return result.success, DagsterEventType.ASSET_MATERIALIZATION in events, None if look is None else look.passed, tries


def is_behind(result):
    (one,) = result.get_asset_check_evaluations()
    return not one.passed and bool(one.metadata["behind"].data)


def main():
    with Scenes(sys.argv[1]) as scenes, DagsterInstance.ephemeral() as instance:
        os.environ["PATH"] = f"{scenes.bin}:{os.environ['PATH']}"
        for code in CODES:
            definitions = load(scenes, code, scenes.folder(code))
            if code == 0:
                check(is_behind(run(definitions, "alert", instance)), "the alert before a night")
            result = run(definitions, "nightly", instance)
            check(outcome(result) == EXPECTED[code], f"exit code {code}: {outcome(result)}, not {EXPECTED[code]}")
            if code == 0:
                metadata = result.asset_materializations_for_node("warehouse")[0].metadata
                check(metadata["responses_inserted"].value == RESPONSES, f"the metadata of the asset: {metadata}")
                check(not is_behind(run(definitions, "alert", instance)), "the alert after a night")
    print("dagster: 2 jobs run for each exit code")


if __name__ == "__main__":
    main()
