"""A backfill of years by mapped tasks under Airflow 3: each pulls every N-th month, and all write one warehouse.

It needs a warehouse with several writers: a bucket or a catalog (docs/howto/catalogs.md), which studysync.toml names. A task that is
tried again resumes; on another machine, the ledger of the warehouse says what is left. Trigger it by hand, and let the nightly DAG of
airflow_dag.py run afterwards.

Exit codes: 0 and 3 success, 3 with a warning; 2 and 4 failed without a retry; all others tried again.
"""

import logging
import subprocess
from datetime import datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException  # before Airflow 3.2: airflow.exceptions

# Holds studysync.toml, which names the file of the key.
FOLDER = "/srv/studysync"
SINCE = "2020-01-01"
WORKERS = 8
log = logging.getLogger(__name__)


@dag(dag_id="studysync_workers", schedule=None, start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def backfill():
    @task(retries=6, retry_delay=timedelta(minutes=20), map_index_template="{{ shard }}")
    def worker(shard):
        state = f"workers/{shard}/checkpoints.sqlite"
        arguments = ["backfill", "--from", SINCE, "--shard", f"{shard}/{WORKERS}", "--state", state]
        with subprocess.Popen(["studysync", *arguments], cwd=FOLDER) as process:
            try:
                process.wait()
            except BaseException:
                # A task that is cleared or times out: the run ends in order.
                process.terminate()
                raise
        match process.returncode:
            case 0:
                pass
            case 3:
                log.warning("something needs a look, see the log of this task")
            case 2 | 4:
                raise AirflowFailException("the configuration is wrong, or the service refused the key")
            case code:
                raise RuntimeError(f"the run ended with exit code {code}; what is committed stays")

    worker.expand(shard=list(range(1, WORKERS + 1)))


backfill()
