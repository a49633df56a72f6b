"""Becomes the program that was installed with this module."""

import os
import sys
import sysconfig
from pathlib import Path


def program() -> Path:
    """The program: in the `bin` of this environment, or in that of a `pip install --user` or `--target`."""
    name = "studysync"
    user_scheme = sysconfig.get_preferred_scheme("user") if sys.version_info >= (3, 10) else "posix_user"
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", user_scheme)]
    folders.append(Path(__file__).parents[1] / "bin")
    for folder in folders:
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    sys.exit(f"{name} is in none of {', '.join(map(str, folders))}")


if __name__ == "__main__":
    os.execv(program(), ["studysync", *sys.argv[1:]])
