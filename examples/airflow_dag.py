"""The nightly job under Airflow: one task, safe to retry, for every run goes on where the last one stopped."""

from datetime import datetime, timedelta

from airflow import DAG
from airflow.providers.standard.operators.bash import BashOperator

with DAG(
    dag_id="studysync",
    schedule="15 2 * * *",
    start_date=datetime(2026, 1, 1),
    # A missed night is part of the next one: what is new since the last run is what is due.
    catchup=False,
    max_active_runs=1,
):
    BashOperator(
        task_id="sync",
        # 3: done, and something needs a look. 5 and 6 (another run, stopped early) fail the task, and a retry goes on.
        bash_command="cd /srv/studysync && studysync sync --deadline 3h --json >> runs.ndjson || test $? -eq 3",
        # The key is in the worker's environment: STUDYSYNC_API_KEY.
        append_env=True,
        retries=3,
        retry_delay=timedelta(minutes=20),
    )
