"""The nightly job and an alert under Airflow 3: tasks that are safe to retry, for every run resumes where the last one stopped.

What the exit code of `studysync sync` makes of the task `sync`:

    0     success
    3     success, and the task `needs_a_look` runs as well, with a warning in its log; on other nights it is skipped
    5, 6  skipped, and so is what comes after it: another run is at work, or this one stopped early. No retry: a run that stopped
          at its deadline or its budget would spend both once more. The next night resumes, and `studysync_lag` fails if it
          does not catch up
    1     tried again, three times
    2, 4  failed without a retry: the configuration or the key must be changed first
"""

import json
import logging
import subprocess
from datetime import datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException  # before Airflow 3.2: airflow.exceptions

# Holds studysync.toml, which names the file of the key.
FOLDER = "/srv/studysync"
log = logging.getLogger(__name__)


def studysync(*arguments):
    """Runs a command, its log in the task's log: exit code and stdout."""
    with subprocess.Popen(["studysync", *arguments], cwd=FOLDER, stdout=subprocess.PIPE, text=True) as process:
        try:
            out, _ = process.communicate()
        except BaseException:
            # A task that is cleared or times out: the run ends in order.
            process.terminate()
            raise
    return process.returncode, out


@dag(
    dag_id="studysync",
    schedule="15 2 * * *",
    start_date=datetime(2026, 1, 1),
    # A missed night is part of the next one: what is new since the last run is what is due.
    catchup=False,
    max_active_runs=1,
)
def nightly():
    @task(retries=3, retry_delay=timedelta(minutes=20))
    def sync():
        code, out = studysync("sync", "--deadline", "3h", "--json")
        match code:
            case 0 | 3:
                return json.loads(out)
            case 5:
                raise AirflowSkipException("another run is at work")
            case 6:
                raise AirflowSkipException("stopped early; the next run resumes")
            case 2:
                raise AirflowFailException("the configuration is wrong")
            case 4:
                raise AirflowFailException("the service refused the key")
            case _:
                raise RuntimeError(f"the run failed with exit code {code}; what is committed stays")

    @task
    def needs_a_look(run):
        if run["outcome"] != "needs_a_look":
            raise AirflowSkipException("nothing to look at")
        # The place for a notifier of yours.
        log.warning("something needs a look, see the log of the task sync: %s", json.dumps(run["streams"]))

    needs_a_look(sync())


@dag(dag_id="studysync_lag", schedule="0 9 * * *", start_date=datetime(2026, 1, 1), catchup=False)
def lag():
    """Fails when a stream is further behind than it may be, whatever became of the nights."""

    @task
    def is_not_behind():
        code, out = studysync("status", "--max-lag", "26h")
        if code:
            raise AirflowFailException("\n".join(line for line in out.splitlines() if line.startswith("BEHIND")) or f"exit code {code}")

    is_not_behind()


nightly()
lag()
