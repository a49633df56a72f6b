"""Checks the units of examples/systemd for each exit code. `check_systemd.py PROGRAM`

systemd-analyze verifies the files and their hardening. The unit's own command then runs for each exit code; what the unit's
settings make of the code decides whether it succeeded, is started again, or has failed, and tell.sh runs as OnSuccess= or
OnFailure= would start it. No systemd runs here: one that is booted on a working machine acts on that machine.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys

from scenes import CODES, EXAMPLES, Scenes, check

UNITS = EXAMPLES / "systemd"
# Exit code of the run: how the unit takes it, the subject of the mail, and what the mail quotes. No subject is no mail.
EXPECTED = {
    0: ("success", "", ""),
    1: ("retry", "failed: exit-code, exit status 1", "FAILED themes"),
    2: ("failed", "cannot start: the configuration is wrong", "no_such_key"),
    3: ("success", "is done, and something needs a look", "5 REJECTED"),
    4: ("failed", "failed: the service refused the key", "the service refused the key from file"),
    5: ("success", "", ""),
    6: ("success", "", ""),
}
# journalctl as far as tell.sh uses it, and a mailer that keeps what it gets.
JOURNALCTL = """#!/bin/sh
for wanted; do :; done
[ "$wanted" = _SYSTEMD_INVOCATION_ID=one ] && cat "$JOURNAL"
"""
MAIL = """#!/bin/sh
{ echo "$3: $2"; cat; } >"$MAILED"
"""


def settings(name):
    """The settings of a unit; of one that is set twice, the last."""
    lines = (UNITS / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Za-z]+=", line))


def analyze(scenes):
    """The files as systemd-analyze sees them, beside a program that is there."""
    folder = scenes.root / "verified"
    shutil.copytree(UNITS, folder)
    for unit in folder.glob("*.service"):
        unit.write_text(unit.read_text().replace("/usr/local/bin/studysync", str(scenes.bin / "studysync")))
    units = sorted(path.name.replace("@", "@x") for path in folder.glob("studysync*"))
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"}
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], env=environment, capture_output=True, text=True)
    # It complains about other units of the machine as well.
    problems = [line for line in done.stderr.splitlines() if "studysync" in line]
    check(not problems, "systemd-analyze verify:\n" + "\n".join(problems))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", folder / "studysync.service"],
        capture_output=True, text=True,
    )
    exposure = re.search(r"exposure level for .*: ([0-9.]+)", done.stdout)
    check(done.returncode == 0 and exposure, f"systemd-analyze security:\n{done.stdout[-400:]}{done.stderr}")
    print(f"systemd: {len(units)} units verified, exposure {exposure.group(1)} of 10")


def taken(unit, code):
    """How systemd takes an exit code, by the settings SuccessExitStatus=, Restart= and RestartPreventExitStatus=."""
    if code == 0 or str(code) in unit.get("SuccessExitStatus", "").split():
        return "success"
    if unit.get("Restart") == "on-failure" and str(code) not in unit.get("RestartPreventExitStatus", "").split():
        return "retry"
    return "failed"


def check_retries():
    """Retries end, so that the unit fails and somebody is told, and the limit on them is forgotten by the next night."""
    unit = settings("studysync.service")
    minutes, hours = int(unit["RestartSec"].removesuffix("min")), int(unit["StartLimitIntervalSec"].removesuffix("h"))
    attempts = int(unit["StartLimitBurst"])
    check(attempts == 4 and attempts * minutes < hours * 60 < 24 * 60, f"{attempts} attempts, {minutes} minutes apart, within {hours} h")


def run_unit(scenes, folder, name):
    """Runs the command of a unit and then tell.sh: the exit code, and the mail."""
    unit = settings(name)
    command = shlex.split(unit["ExecStart"].replace("/usr/local/bin/studysync", str(scenes.bin / "studysync")))
    environment = {"PATH": scenes.path, "JOURNAL": str(folder / "journal"), "MAILED": str(folder / "mailed")}
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
    check_retries()
    with Scenes(sys.argv[1]) as scenes:
        if shutil.which("systemd-analyze"):
            analyze(scenes)
        else:
            print("SKIPPED: systemd-analyze is not installed")
        for name, text in {"journalctl": JOURNALCTL, "mail": MAIL}.items():
            (scenes.bin / name).write_text(text)
            (scenes.bin / name).chmod(0o755)
        for code in CODES:
            how, subject, quoted = EXPECTED[code]
            found, mail = run_unit(scenes, scenes.folder(code), "studysync.service")
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
        print("systemd: the commands of 2 units run for each exit code")


if __name__ == "__main__":
    main()
