"""Runs the DAGs of examples/airflow_dag.py for each exit code, and checks how each task ends. `check_airflow.py PROGRAM`

With the package apache-airflow. Airflow's home is a folder of the test; only the wait between retries is shorter.
"""

import logging
import os
import subprocess
import sys

from scenes import CODES, Scenes, check

# By exit code of the run: the states of `sync` and `needs_a_look`, and the number of tries of
# `sync`.
EXPECTED = {
    0: ("success", "skipped", 1),
    1: ("failed", "upstream_failed", 4),
    2: ("failed", "upstream_failed", 1),
    3: ("success", "success", 1),
    4: ("failed", "upstream_failed", 1),
    5: ("skipped", "skipped", 1),
    6: ("skipped", "skipped", 1),
}


def install(scenes):
    """A DAG for each exit code, and an Airflow to run them: the folder of each DAG."""
    dags = scenes.root / "dags"
    dags.mkdir()
    folders = {}
    for code in CODES:
        folders[code] = scenes.folder(code)
        text = scenes.example("airflow_dag.py", folders[code]).replace("timedelta(minutes=20)", "timedelta(0)")
        text = text.replace('dag_id="studysync"', f'dag_id="studysync_{code}"').replace('"studysync_lag"', f'"studysync_lag_{code}"')
        (dags / f"code_{code}.py").write_text(text)
    folders["workers"] = scenes.shared_folder()
    (dags / "workers.py").write_text(scenes.example("airflow_workers.py", folders["workers"]).replace("timedelta(minutes=20)", "timedelta(0)"))
    os.environ |= {
        "AIRFLOW_HOME": str(scenes.root / "airflow"), "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING", "PATH": f"{scenes.bin}:{os.environ['PATH']}",
    }
    program = os.path.join(os.path.dirname(sys.executable), "airflow")
    done = subprocess.run([program, "db", "migrate"], capture_output=True, text=True)
    check(done.returncode == 0, f"airflow db migrate: {done.stderr[-2000:]}")
    return dags, folders


def run(bag, name):
    """Runs a DAG as `airflow dags test` does: state and tries of each task."""
    result = bag.dags[name].test()
    return {one.task_id: (str(one.state), one.try_number) for one in result.get_task_instances()}


def main():
    with Scenes(sys.argv[1]) as scenes:
        dags, folders = install(scenes)
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(dags)
        check(not bag.import_errors and len(bag.dags) == 2 * len(CODES) + 1, f"the file is no DAG: {bag.import_errors}")
        before = run(bag, "studysync_lag_0")
        check(before["is_not_behind"][0] == "failed", f"the alert before a night: {before}")
        for code, (sync, look, tries) in EXPECTED.items():
            found = run(bag, f"studysync_{code}")
            wanted = {"sync": (sync, tries), "needs_a_look": look}
            check(found["sync"] == wanted["sync"] and found["needs_a_look"][0] == look, f"exit code {code}: {found}, not {wanted}")
        after = run(bag, "studysync_lag_0")
        check(after["is_not_behind"][0] == "success", f"the alert after a night: {after}")
        result = bag.dags["studysync_workers"].test()
        states = [str(one.state) for one in result.get_task_instances()]
        check(states == ["success"] * 8, f"the workers: {states}")
        scenes.check_shared(folders["workers"], "airflow: the workers")
    print("airflow: 2 DAGs run for each exit code, and one of 8 workers")


if __name__ == "__main__":
    main()
