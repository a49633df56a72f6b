"""Python environments with packages of the registry, in a folder that is kept."""

import os
import pathlib
import shutil
import subprocess
import sys


def installed(name, packages):
    """The interpreter of an environment with the packages, made once."""
    at = pathlib.Path(os.environ.get("STUDYSYNC_BENCH", pathlib.Path.home() / ".cache" / "studysync-bench")) / name
    mark, wanted = at / "packages", " ".join(packages)
    if not mark.exists() or mark.read_text().strip() != wanted:
        shutil.rmtree(at, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", at], check=True)
        subprocess.run([at / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
        mark.write_text(wanted + "\n")
    return at / "bin" / "python"
