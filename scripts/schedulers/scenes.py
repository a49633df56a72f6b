"""Folders in which the real `studysync sync` ends with a wanted exit code, because the real sandbox service behaves accordingly.

    with Scenes(program) as scenes:
        folder = scenes.folder(6)

A folder holds `studysync.toml` and `key`, as the examples expect them in /srv/studysync. `scenes.path` is a PATH on which the
program is called `studysync`.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

KEY = "scheduler-test-key"
HOUR_MS = 3_600_000
# The number of responses in the service.
RESPONSES = 300
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
CODES = (0, 1, 2, 3, 4, 5, 6)

# The service's behaviour for an exit code; all other codes use a healthy service.
SERVICES = {
    "healthy": [],
    "months": [],
    # The service refuses every window of themes: the run fails, and stores the other streams.
    "refusing": ["--faults", json.dumps({"server_error": {"when": {"probability": 1, "path": "/v1/themes"}, "status": 422}})],
    # Records with unknown fields, which the configuration below turns into rejects that need a
    # look.
    "rejects": ["--hostile-share", "0.2"],
    # Each request takes longer than a test: the run keeps the lease.
    "slow": ["--latency-ms", "50000"],
    # The service sends a `Retry-After` of five hours, longer than any run may wait.
    "limited": [
        "--faults", json.dumps({"too_many_requests": {"when": {"probability": 1}, "retry_after": {"wait_ms": 5 * HOUR_MS}}}),
    ],
}
# Seven months of answers, for workers that share them.
DAYS = {"months": 200}
SERVICE_OF = {1: "refusing", 3: "rejects", 5: "slow", 6: "limited"}


class Scenes:
    def __init__(self, program):
        # A check that is terminated still stops the processes that it started.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="studysync-schedulers-"))
        # Units with User= must be able to enter the folders.
        self.root.chmod(0o755)
        self.program = pathlib.Path(program).resolve()
        self.bin = self.root / "bin"
        self.bin.mkdir()
        (self.bin / "studysync").symlink_to(self.program)
        self.path = f"{self.bin}:/usr/bin:/bin"
        self.processes, self.addresses, self.made = [], {}, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def address(self, name):
        """Starts the service if it does not run yet."""
        if name not in self.addresses:
            arguments = ["--responses", str(RESPONSES), "--days", str(DAYS.get(name, 5)), "--surveys", "3", "--api-key", KEY, "--listen", "127.0.0.1:0"]
            process = subprocess.Popen(
                [self.program, "sandbox", *arguments, *SERVICES[name]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self.processes.append(process)
            for line in process.stdout:
                if found := re.search(r"http://[0-9.:]+", line):
                    self.addresses[name] = found.group()
                    break
            else:
                raise RuntimeError(f"the sandbox ended with exit code {process.wait()}")
        return self.addresses[name]

    def folder(self, code):
        """A new folder in which `studysync sync` ends with this exit code."""
        self.made += 1
        folder = self.root / f"scene-{self.made}-exits-with-{code}"
        folder.mkdir()
        address = self.address(SERVICE_OF.get(code, "healthy"))
        lines = [
            "[service]", f'base_url = "{address}"', f'api_key_file = "{folder}/key"',
            "[warehouse]", f'duckdb = "{folder}/warehouse.duckdb"', "[state]", f'path = "{folder}/studysync-state/checkpoints.sqlite"',
            # A run leaves no answers to the next run: at any time of the day it stores all of the
            # service's answers.
            "[streams.responses]", "settle_secs = 0", "no_such_key = true" if code == 2 else "",
            "[streams.responses.drift]", 'unknown_fields = "discard_row"',
        ]
        (folder / "studysync.toml").write_text("\n".join(lines) + "\n")
        (folder / "key").write_text("another key" if code == 4 else KEY)
        (folder / "key").chmod(0o600)
        if code == 5:
            self.hold_the_lease(folder)
        return folder

    def shared_folder(self, warehouse=None):
        """A new folder in which workers share a service of seven months, and a DuckDB file: that of this folder, or `warehouse`."""
        folder = self.folder(0)
        config = folder / "studysync.toml"
        text = config.read_text().replace(self.address("healthy"), self.address("months"))
        config.write_text(text.replace(f"{folder}/warehouse.duckdb", str(warehouse)) if warehouse else text)
        return folder

    def check_shared(self, folder, what):
        """The workers have stored each answer, and whoever comes next finds nothing to do."""
        done = self.run(folder, "query", "SELECT count(*) FROM responses", "--format", "csv")
        check(done.stdout.split() == ["count_star()", str(RESPONSES)], f"{what}: {done}")
        done = self.run(folder, "backfill", "--from", "2020-01-01", "--to", "2026-01-01", "--state", "new/checkpoints.sqlite", "--json")
        check(done.returncode == 0 and json.loads(done.stdout)["requests"]["total"] == 0, f"{what}: something is left: {done}")

    def hold_the_lease(self, folder):
        """Starts a run that waits for its first answer."""
        other = subprocess.Popen([self.program, "--quiet", "sync"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(other)
        for _ in range(200):
            status = self.run(folder, "status", "--json")
            if status.returncode == 0 and json.loads(status.stdout).get("running"):
                return
            time.sleep(0.05)
        raise RuntimeError(f"the other run holds no lease: {status.stderr}")

    def run(self, folder, *arguments):
        return subprocess.run([self.program, *arguments], cwd=folder, capture_output=True, text=True)

    def example(self, name, folder):
        """An example as it would be installed for this folder."""
        return (EXAMPLES / name).read_text().replace("/srv/studysync", str(folder))


def runs(folder):
    """Exit codes of the runs that this folder has seen, from the JSON that each of them leaves."""
    return [json.loads(line)["exit_code"] for line in (folder / "runs.ndjson").read_text().splitlines()]


def check(holds, what):
    if not holds:
        raise SystemExit(f"FAILED: {what}")


if __name__ == "__main__":
    # Tests the scenes themselves: each ends with its exit code.
    with Scenes(sys.argv[1]) as scenes:
        for code in CODES:
            began = time.monotonic()
            done = scenes.run(scenes.folder(code), "sync", "--deadline", "3h", "--json")
            check(done.returncode == code, f"a run ended with {done.returncode} and not {code}:\n{done.stdout}{done.stderr}")
            if os.environ.get("SHOW"):
                print(f"{code}: {time.monotonic() - began:.1f} s\n{done.stdout[:300]}\n{done.stderr}")
    print("scenes: 7 exit codes provoked")
