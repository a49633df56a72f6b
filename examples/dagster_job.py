"""The warehouse as an asset of Dagster, with the nightly job and an alert: `dagster dev -f dagster_job.py`.

What the exit code of `studysync sync` makes of a run:

    0     the asset is materialized, with numbers of the run as its metadata
    3     the same, and the check `nothing_to_look_at` does not pass, as a warning
    5, 6  the run succeeds, and the asset is not materialized: another run is at work, or this one stopped early. No retry: a run
          that stopped at its deadline or its budget would spend both once more. The next night resumes, and the check
          `is_not_behind` fails if it does not catch up
    1     tried again, three times
    2, 4  failed without a retry: the configuration or the key must be changed first
"""

import json
import subprocess

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetSelection,
    Backoff,
    Definitions,
    Failure,
    MaterializeResult,
    RetryPolicy,
    ScheduleDefinition,
    asset,
    asset_check,
    define_asset_job,
)

# Holds studysync.toml, which names the file of the key.
FOLDER = "/srv/studysync"


def studysync(*arguments):
    """Runs a command, its log in the run's log: exit code and stdout."""
    with subprocess.Popen(["studysync", *arguments], cwd=FOLDER, stdout=subprocess.PIPE, text=True) as process:
        try:
            out, _ = process.communicate()
        except BaseException:
            # A run that is terminated: the program ends in order.
            process.terminate()
            raise
    return process.returncode, out


@asset(
    output_required=False,
    retry_policy=RetryPolicy(max_retries=3, delay=1200, backoff=Backoff.LINEAR),
)
def warehouse(context):
    """The tables of studysync, in step with the study feedback service."""
    code, out = studysync("sync", "--deadline", "3h", "--json")
    if code in (5, 6):
        context.log.info("another run is at work" if code == 5 else "stopped early; the next run resumes")
        return
    if code in (2, 4):
        what = "the configuration is wrong" if code == 2 else "the service refused the key"
        raise Failure(what, allow_retries=False)
    if code not in (0, 3):
        raise Failure(f"the run failed with exit code {code}; what is committed stays")
    run = json.loads(out)
    numbers = {f"{stream}_{fate}": rows[fate] for stream, rows in run["streams"].items() for fate in ("inserted", "updated", "vanished")}
    yield MaterializeResult(metadata={"outcome": run["outcome"], "requests": run["requests"]["total"], **numbers, "run": run})


@asset_check(asset=warehouse)
def nothing_to_look_at(context):
    """Does not pass, as a warning, when the last run that was done says that something needs a look."""
    run = context.instance.get_latest_materialization_event(warehouse.key).asset_materialization.metadata["run"].value
    return AssetCheckResult(
        passed=run["outcome"] != "needs_a_look", severity=AssetCheckSeverity.WARN, metadata={"streams": run["streams"]}
    )


@asset_check(asset=warehouse)
def is_not_behind():
    """Fails when a stream is further behind than it may be, whatever became of the nights."""
    code, out = studysync("status", "--max-lag", "26h")
    behind = [line for line in out.splitlines() if line.startswith("BEHIND")]
    return AssetCheckResult(passed=code == 0, metadata={"exit_code": code, "behind": behind})


nightly = define_asset_job(
    "nightly", selection=AssetSelection.assets(warehouse).without_checks() | AssetSelection.checks(nothing_to_look_at)
)
alert = define_asset_job("alert", selection=AssetSelection.checks(is_not_behind))

definitions = Definitions(
    assets=[warehouse],
    asset_checks=[nothing_to_look_at, is_not_behind],
    jobs=[nightly, alert],
    schedules=[
        ScheduleDefinition(job=nightly, cron_schedule="15 2 * * *"),
        ScheduleDefinition(job=alert, cron_schedule="0 9 * * *"),
    ],
)
