"""Runs the lines of examples/cron for each exit code, and checks what cron mails. `check_cron.py PROGRAM`

As root and where cron is installed, the real daemon runs the file as one of /etc/cron.d, in namespaces of its own and with a
mailer that keeps what it gets. Elsewhere the lines run in the environment that cron gives them.
"""

import os
import re
import shutil
import subprocess
import sys
import time

from scenes import CODES, Scenes, check, runs

USER_COLUMN = re.compile(r"^((?:\S+\s+){5})studysync\s+", re.MULTILINE)


def install(scenes, folder):
    """The crontab for this folder."""
    shutil.copy(os.path.join(os.path.dirname(__file__), "../../examples/cron/nightly.sh"), folder)
    return scenes.example("cron/studysync", folder).replace("/usr/local/bin", str(scenes.bin))


def jobs(crontab):
    """Environment and command of each line of a user's crontab."""
    text = [line for line in USER_COLUMN.sub(r"\1", crontab).splitlines() if line and not line.startswith("#")]
    environment = dict(line.split("=", 1) for line in text if re.match(r"[A-Z_]+=", line))
    return [(environment, line.split(None, 5)[5]) for line in text if not re.match(r"[A-Z_]+=", line)]


def as_cron_does(environment, command):
    """What cron would mail. cron's own environment: HOME, LOGNAME, SHELL and PATH, and what the crontab sets."""
    assert "%" not in command, "cron takes a percent sign for the end of the command"
    environment = {"HOME": "/", "LOGNAME": "nobody", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin", "RETRY_SECONDS": "0", **environment}
    done = subprocess.run(
        [environment["SHELL"], "-c", command], cwd="/", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout


BOOT = """
set -e
mount --make-rprivate /
for place in /etc/cron.d /var/spool/cron /run; do mount -t tmpfs tmpfs $place; done
mkdir -p /var/spool/cron/crontabs /run/sbin
mount --bind "$ROOT/no-crontab" /etc/crontab
mount --bind /usr/sbin /run/sbin
mount -t tmpfs tmpfs /usr/sbin
ln -s /run/sbin/* /usr/sbin/
rm -f /usr/sbin/sendmail
cp "$ROOT/sendmail" /usr/sbin/sendmail
cp "$ROOT"/crontabs/* /etc/cron.d/
exec /usr/sbin/cron -f
"""


def with_the_daemon(scenes, crontabs, folders):
    """The mails that the real cron sends, by the name of the crontab. Each line is due in the next minute."""
    mails, tabs = scenes.root / "mails", scenes.root / "crontabs"
    mails.mkdir()
    tabs.mkdir()
    (scenes.root / "no-crontab").touch()
    for name, text in crontabs.items():
        text = text.replace("MAILTO=data-team@example.com", f"MAILTO={name}\nRETRY_SECONDS=0")
        (tabs / name).write_text(USER_COLUMN.sub("* * * * * root ", text))
    mailer = scenes.root / "sendmail"
    mailer.write_text(f'#!/bin/sh\nfor to; do :; done\ncat >"{mails}/$to.part"\nmv "{mails}/$to.part" "{mails}/$to"\n')
    mailer.chmod(0o755)
    # The daemon ends with this script, even if the script is killed.
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", BOOT]
    daemon = subprocess.Popen(command, env={"ROOT": str(scenes.root), "PATH": os.environ["PATH"]}, stderr=subprocess.PIPE, text=True)
    scenes.processes.append(daemon)
    # A job that sends no mail has ended when its log exists.
    awaited = [mails / name if EXPECTED[name] else folders[name] / "sync.log" for name in crontabs]
    ends_at = time.monotonic() + 150
    while not all(path.exists() for path in awaited):
        check(daemon.poll() is None, "cron ended: " + (daemon.stderr.read() if daemon.poll() is not None else ""))
        check(time.monotonic() < ends_at, f"cron did not run everything: {[str(path) for path in awaited if not path.exists()]}")
        time.sleep(0.3)
    time.sleep(1)
    daemon.kill()
    return {name: (mails / name).read_text().split("\n\n", 1)[1] if (mails / name).exists() else "" for name in crontabs}


# The text that the mail must contain; "" means no mail.
EXPECTED = {
    "code-0": "", "code-5": "", "code-6": "",
    "code-1": "The nightly run failed 4 times",
    "code-2": "no_such_key",
    "code-3": "5 REJECTED",
    "code-4": "The service refused the key",
    "behind": "BEHIND  responses: nothing is complete",
    "missing": "studysync: not found",
}


def main():
    with Scenes(sys.argv[1]) as scenes:
        folders = {f"code-{code}": scenes.folder(code) for code in CODES} | {"behind": scenes.folder(0), "missing": scenes.folder(0)}
        crontabs = {}
        for name, folder in folders.items():
            text = install(scenes, folder)
            if name == "missing":
                text = text.replace(f"PATH={scenes.bin}:", "PATH=")
            unwanted = "nightly.sh" if name == "behind" else "--max-lag"
            crontabs[name] = "\n".join(line for line in text.splitlines() if line.startswith("#") or unwanted not in line) + "\n"
        if os.geteuid() == 0 and shutil.which("cron") and shutil.which("unshare"):
            found, how = with_the_daemon(scenes, crontabs, folders), "the real daemon"
        else:
            print("SKIPPED: the real cron, which only root can start where it is installed")
            found = {name: "".join(as_cron_does(*one) for one in jobs(text)) for name, text in crontabs.items()}
            how = "cron's environment"
        for name, mail in found.items():
            expected = EXPECTED[name]
            check(expected in mail if expected else mail == "", f"{name}: the mail is {mail!r} and not {expected!r}")
        check(runs(folders["code-1"]) == [1, 1, 1, 1], f"attempts after failures: {runs(folders['code-1'])}")
        check(runs(folders["code-4"]) == [4], "a refused key was tried again")
        # A user's own crontab and a healthy warehouse: neither the nightly run nor the alert sends
        # a mail.
        folder = scenes.folder(0)
        mails = [as_cron_does(*job) for job in jobs(install(scenes, folder))]
        check(mails == ["", ""] and runs(folder) == [0], f"a healthy night is mailed: {mails}")
        check((folder / "sync.log").stat().st_mode & 0o077 == 0, "others can read the log")
        print(f"cron: {len(EXPECTED)} crontabs run by {how}")
        rotate(scenes, folder)


def rotate(scenes, folder):
    """Rotates the logs of a night twice, and lets the next night write."""
    if not shutil.which("logrotate", path="/usr/sbin:/usr/bin") or os.geteuid() != 0:
        return print("SKIPPED: logrotate is not installed")
    text = scenes.example("cron/logrotate.conf", folder).replace("studysync studysync", "root root")
    rules = scenes.root / "logrotate.conf"
    rules.write_text(text)
    rules.chmod(0o644)
    command = ["/usr/sbin/logrotate", "--force", "--state", scenes.root / "logrotate.state", rules]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True)
        check(done.returncode == 0, f"logrotate: {done.stderr}")
        as_cron_does(*jobs(install(scenes, folder))[0])
    check(runs(folder) == [0] and (folder / "runs.ndjson.2.gz").exists(), "the log was not rotated")
    print("logrotate: two months")


if __name__ == "__main__":
    main()
