"""Prints the configuration of the Debian package: what `studysync init --full` writes, with state and warehouse below /var/lib/studysync.

Usage: debian_config.py PROGRAM
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

STATE = "/var/lib/studysync"
# Table, key, value in the package, and prefix. A value with the prefix "# " is commented out: the
# timer works without the secret of webhooks.
CHANGES = [
    ("service", "api_key_file", "/etc/studysync/key", ""),
    ("warehouse", "duckdb", f"{STATE}/warehouse/warehouse.duckdb", ""),
    ("state", "path", f"{STATE}/state/checkpoints.sqlite", ""),
    ("serve", "token_file", "/etc/studysync/webhook-secret", "# "),
]
KEYS = """# The package's units run as the user studysync, which must be able to read the files that hold secrets:
#   install -m 0640 -g studysync /dev/stdin /etc/studysync/key
# For webhooks, do the same with /etc/studysync/webhook-secret, and set token_file under [serve].
# Members of the group studysync-readers can read the warehouse, and neither the secrets nor the state:
#   adduser ann studysync-readers
"""


def template(program: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "init", "--full", "studysync.toml"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        return (Path(folder) / "studysync.toml").read_text()


def changed(text: str, table: str, key: str, value: str, mark: str) -> str:
    """The text with this key set in its table, where the template has it, as a comment or not. A mark makes it a comment."""
    found = re.search(rf"^\[{table}\]\n(?:(?!\[).*\n)*?(?:# )?{key} = .*$", text, re.M)
    if not found:
        raise SystemExit(f"the template of `studysync init` has no {key} under [{table}]")
    line = found[0].rfind("\n") + 1
    return text[: found.start() + line] + f'{mark}{key} = "{value}"' + text[found.end() :]


def main() -> None:
    text = template(sys.argv[1])
    for change in CHANGES:
        text = changed(text, *change)
    print(KEYS + text, end="")


if __name__ == "__main__":
    main()
