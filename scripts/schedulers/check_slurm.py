"""Runs the tasks of examples/slurm/backfill.sbatch as Slurm does: at the same time, with its variables. `check_slurm.py PROGRAM`

No cluster runs here: a program in the place of `scontrol` notes which task is put into the queue again.
"""

import os
import subprocess
import sys

from scenes import Scenes, check

EXAMPLE = "slurm/backfill.sbatch"
TASKS = range(1, 9)


def start(scenes, folder, task, restarts=0):
    # Slurm gives each task a copy of the script.
    script = folder / f"backfill-{task}.sbatch"
    script.write_text(scenes.example(EXAMPLE, folder))
    variables = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_JOB_ID": "77", "SLURM_RESTART_COUNT": str(restarts)}
    return subprocess.Popen(["bash", script], cwd=folder, env={"PATH": scenes.path} | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process):
    out, _ = process.communicate(timeout=300)
    return process.returncode, out


def main():
    with Scenes(sys.argv[1]) as scenes:
        queue = scenes.root / "queue"
        queue.touch()
        scontrol = scenes.bin / "scontrol"
        scontrol.write_text(f'#!/bin/sh\necho "$@" >>{queue}\n')
        scontrol.chmod(0o755)
        folder = scenes.shared_folder()
        for task, process in [(task, start(scenes, folder, task)) for task in TASKS]:
            code, out = end(process)
            check(code == 0, f"task {task} ended with {code}:\n{out}")
        check(queue.read_text() == "", f"put into the queue again: {queue.read_text()}")
        scenes.check_shared(folder, "slurm: the tasks")
        for code, restarts, wanted, again in ((1, 0, 0, "requeue 77_2\n"), (1, 6, 1, ""), (2, 0, 2, ""), (4, 0, 4, ""), (6, 0, 0, "requeue 77_2\n")):
            queue.write_text("")
            found, out = end(start(scenes, scenes.folder(code), 2, restarts))
            check((found, queue.read_text()) == (wanted, again), f"exit code {code} after {restarts} restarts: {found}, {queue.read_text()!r}\n{out}")
    print("slurm: 8 tasks at the same time, and each exit code")


if __name__ == "__main__":
    main()
