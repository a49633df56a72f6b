"""Checks the units of examples/systemd for each exit code. `check_systemd.py PROGRAM`

systemd-analyze verifies the files and their hardening. The unit's own command then runs for each exit code; what the unit's
settings make of the code decides whether it succeeded or has failed, and tell.sh runs as OnSuccess= or OnFailure= would start it.
The starts of a week are computed: no start by hand and no failure may make systemd refuse a night. No systemd runs here: one that is
booted on a working machine acts on that machine.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

from scenes import CODES, EXAMPLES, Scenes, check

UNITS = EXAMPLES / "systemd"
PACKAGED = EXAMPLES.parent / "packaging/systemd"
# By exit code of the run: the result of the unit, the subject of the mail, and its quoted text. No
# subject means no mail.
EXPECTED = {
    0: ("success", "", ""),
    1: ("failed", "failed: exit-code, exit status 1", "FAILED themes"),
    2: ("failed", "cannot start: the configuration is wrong", "no_such_key"),
    3: ("success", "is done, and something needs a look", "5 REJECTED"),
    4: ("failed", "failed: the service refused the key", "the service refused the key from file"),
    5: ("success", "", ""),
    6: ("success", "", ""),
}
# A journalctl with the options that tell.sh uses, and a mailer that stores its input.
JOURNALCTL = """#!/bin/sh
for wanted; do :; done
[ "$wanted" = _SYSTEMD_INVOCATION_ID=one ] && cat "$JOURNAL"
"""
# A sleep that records its argument and returns at once.
SLEEP = """#!/bin/sh
echo "$1" >>"$PAUSES"
"""
MAIL = """#!/bin/sh
{ echo "$3: $2"; cat; } >"$MAILED"
"""


def settings(name, folder=UNITS):
    """The settings of a unit; of one that is set twice, the last."""
    lines = (folder / name).read_text().replace("\\\n", " ").splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Za-z]+=", line))


def command_of(unit, scenes):
    """The words of ExecStart= as systemd starts them, with the program of the scenes."""
    text = re.sub(r"/usr/(local/)?bin/studysync", str(scenes.bin / "studysync"), unit["ExecStart"])
    return [word.replace("$$", "$") for word in shlex.split(text)]


def analyze(scenes):
    """The files as systemd-analyze sees them, beside a program that is there."""
    count = 0
    for source in [PACKAGED, UNITS]:
        folder = scenes.root / f"verified-{source.parent.name}"
        shutil.copytree(source, folder)
        for unit in folder.glob("*.service"):
            unit.write_text(re.sub(r"/usr/(local/)?bin/studysync", str(scenes.bin / "studysync"), unit.read_text()))
        units = sorted(path.name.replace("@", "@x") for path in folder.glob("studysync*"))
        environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"}
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], env=environment, capture_output=True, text=True)
        # systemd-analyze also reports other units of the machine.
        problems = [line for line in done.stderr.splitlines() if "studysync" in line]
        check(not problems, "systemd-analyze verify:\n" + "\n".join(problems))
        count += len(units)
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", folder / "studysync.service"],
        capture_output=True, text=True,
    )
    exposure = re.search(r"exposure level for .*: ([0-9.]+)", done.stdout)
    check(done.returncode == 0 and exposure, f"systemd-analyze security:\n{done.stdout[-400:]}{done.stderr}")
    print(f"systemd: {count} units verified, exposure {exposure.group(1)} of 10")


def taken(unit, code):
    """How systemd takes an exit code of ExecStart=, by the settings SuccessExitStatus= and Restart=."""
    if code == 0 or str(code) in unit.get("SuccessExitStatus", "").split():
        return "success"
    return "retry" if unit.get("Restart", "no") != "no" else "failed"


SECONDS = {"s": 1, "min": 60, "h": 3600}


def seconds(text):
    """A time span of a unit; a number without a unit is seconds."""
    number, unit = re.fullmatch(r"([0-9]+)([a-z]*)", text).groups()
    return int(number) * SECONDS[unit or "s"]


class StartLimit:
    """What systemd does with the starts of a unit: more than `burst` of them in `interval` seconds are refused."""

    def __init__(self, unit):
        self.interval = seconds(unit.get("StartLimitIntervalSec", "10s"))
        self.burst = int(unit.get("StartLimitBurst", "5"))
        self.began, self.count = None, 0

    def accepts(self, at):
        if self.interval == 0 or self.burst == 0:
            return True
        if self.began is None or at >= self.began + self.interval:
            self.began, self.count = at, 0
        self.count += 1
        return self.count <= self.burst


def check_week(folder):
    """Plays a week in which every run fails or hangs until its deadline, and somebody starts the unit by hand before each
    night: no night may be refused, and the attempts of a night end before the next one."""
    unit = settings("studysync.service", folder)
    hour = 3600
    nights = [day * 24 * hour + 2 * hour + 900 for day in range(7)]
    for by_hand in [0, 3, 10]:
        for lasts in [60, 3 * hour]:
            limit, busy_until = StartLimit(unit), 0
            for night in nights:
                starts = [night - 2 * hour + 600 * number for number in range(by_hand)] + [night]
                for at in starts:
                    if at < busy_until and at != night:
                        # Starting a unit that is already active does not count as a start.
                        continue
                    is_accepted = limit.accepts(at)
                    check(is_accepted or at != night, f"{folder.parent.name}: systemd refuses a night after {by_hand} starts by hand")
                    restarts = 0
                    while is_accepted and taken(unit, 1) == "retry" and restarts < 200:
                        at += lasts + seconds(unit["RestartSec"])
                        is_accepted = limit.accepts(at)
                        restarts += 1
                    if at != night and not is_accepted:
                        continue
                    busy_until = at + lasts
    pauses = re.search(r"for minutes in ([0-9 ]+);", unit["ExecStart"]).group(1).split()
    deadline = seconds(re.search(r"--deadline ([0-9]+[a-z]+)", unit["ExecStart"]).group(1))
    longest = len(pauses) * deadline + sum(map(int, pauses)) * 60
    limit = seconds(unit["TimeoutStartSec"])
    check(len(pauses) == 4 and longest < limit < 24 * hour, f"the attempts of a night take {longest} s, and may take {limit} s")


def check_signals(scenes, folder):
    """SIGTERM, as systemd sends it to every process of the unit, ends an attempt and the pause between two."""
    for where in ["a pause", "a run"]:
        place = scenes.folder(1 if where == "a pause" else 0)
        if where == "a run":
            config = place / "studysync.toml"
            config.write_text(config.read_text().replace(scenes.address("healthy"), scenes.address("slow")))
        command = command_of(settings("studysync.service", folder), scenes)
        process = subprocess.Popen(
            command, cwd=place, env={"PATH": "/usr/bin:/bin"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(5)
        check(process.poll() is None, f"the unit's command ended by itself in {where}")
        os.killpg(process.pid, signal.SIGTERM)
        check(process.wait(timeout=60) == 130, f"SIGTERM in {where}: {process.returncode}")


def run_unit(scenes, folder, name):
    """Runs the command of a unit and then tell.sh: the exit code, and the mail."""
    unit = settings(name)
    command = command_of(unit, scenes)
    environment = {
        "PATH": scenes.path, "JOURNAL": str(folder / "journal"), "MAILED": str(folder / "mailed"), "PAUSES": str(folder / "pauses"),
    }
    with open(folder / "journal", "w") as journal:
        code = subprocess.run(command, cwd=folder, env=environment, stdout=journal, stderr=journal).returncode
    result = "success" if taken(unit, code) == "success" else "exit-code"
    started = unit.get("OnSuccess" if result == "success" else "OnFailure", "")
    if started:
        check(started == "studysync-tell@%p.service", f"{name} starts {started}")
        tell = settings("studysync-tell@.service")
        environment |= {
            "MONITOR_SERVICE_RESULT": result, "MONITOR_EXIT_STATUS": str(code), "MONITOR_UNIT": name, "MONITOR_INVOCATION_ID": "one",
        }
        environment |= dict([tell["Environment"].split("=", 1)])
        program = tell["ExecStart"].replace("/srv/studysync", str(UNITS))
        done = subprocess.run(shlex.split(program), env=environment, capture_output=True, text=True)
        check(done.returncode == 0, f"tell.sh ended with {done.returncode}: {done.stderr}")
    mailed = folder / "mailed"
    return code, mailed.read_text() if mailed.exists() else ""


def main():
    for folder in [PACKAGED, UNITS]:
        check_week(folder)
    with Scenes(sys.argv[1]) as scenes:
        if shutil.which("systemd-analyze"):
            analyze(scenes)
        else:
            print("SKIPPED: systemd-analyze is not installed")
        for name, text in {"journalctl": JOURNALCTL, "mail": MAIL, "sleep": SLEEP}.items():
            (scenes.bin / name).write_text(text)
            (scenes.bin / name).chmod(0o755)
        for code in CODES:
            how, subject, quoted = EXPECTED[code]
            folder = scenes.folder(code)
            found, mail = run_unit(scenes, folder, "studysync.service")
            pauses = (folder / "pauses").read_text().split() if (folder / "pauses").exists() else []
            check(pauses == (["20m"] * 3 if code == 1 else []), f"exit code {code}: pauses of {pauses}")
            check(found == code, f"the unit's command ended with {found} and not {code}: {mail}")
            check(taken(settings("studysync.service"), code) == how, f"exit code {code} is not taken as {how}")
            expected = f"root: studysync.service {subject}\n" if subject else ""
            check(mail.startswith(expected) and quoted in mail and bool(mail) == bool(subject), f"exit code {code}: mailed {mail!r}")
        behind = scenes.folder(0)
        code, mail = run_unit(scenes, behind, "studysync-lag.service")
        check(code == 3 and "further behind than they may be" in mail and "BEHIND  responses" in mail, f"lag: {code}, {mail!r}")
        (behind / "mailed").unlink()
        run_unit(scenes, behind, "studysync.service")
        code, mail = run_unit(scenes, behind, "studysync-lag.service")
        check(code == 0 and not mail, f"lag after a night: {code}, {mail!r}")
        check_signals(scenes, UNITS)
        print("systemd: the commands of 2 units run for each exit code")


if __name__ == "__main__":
    main()
