"""Refuses what cannot be handed on: a program that looks for its library in a folder of the build machine, or names such folders, and documents with links to
files that are not in the package.

Usage: check.py [--no-build-paths] STAGE
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ALLOWED = {"$ORIGIN", "$ORIGIN/../lib/studysync", "@loader_path", "@loader_path/../lib/studysync"}
ROOT = Path(__file__).resolve().parents[2]


def library_folders(program: Path) -> list[str]:
    """Where the program looks for its library."""
    if sys.platform == "darwin":
        told = subprocess.run(["otool", "-l", program], check=True, capture_output=True, text=True).stdout
        return re.findall(r"cmd LC_RPATH\n\s+cmdsize \d+\n\s+path (\S+)", told)
    told = subprocess.run(["readelf", "-dW", program], check=True, capture_output=True, text=True).stdout
    return [folder for found in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", told) for folder in found.split(":")]


def build_folders() -> list[str]:
    """Folders of this machine that a program compiled here could name."""
    home = Path.home()
    folders = [ROOT, home, os.environ.get("CARGO_HOME", home / ".cargo"), os.environ.get("CARGO_TARGET_DIR", ROOT / "target")]
    return sorted({f"{folder}/" for folder in folders} - {"//"})


def broken_links(documents: Path) -> list[str]:
    problems = []
    for page in sorted(documents.rglob("*.md")):
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
        targets = [link for link in links if "://" not in link and not link.startswith("mailto:")]
        problems += [f"{page.relative_to(documents)} links to {link}" for link in targets if not (page.parent / link).exists()]
    return problems


def main() -> None:
    stage = Path(sys.argv[-1])
    program = stage / "bin/studysync"
    problems = [f"it looks for libraries in {folder}" for folder in library_folders(program) if folder not in ALLOWED]
    problems += broken_links(stage / "share/doc/studysync")
    if "--no-build-paths" in sys.argv:
        content = program.read_bytes()
        for folder in build_folders():
            found = re.findall(re.escape(folder.encode()) + rb"[\x21-\x7e]{0,80}", content)
            problems += [f"it names {name.decode()}" for name in sorted(set(found))[:5]]
    if problems:
        raise SystemExit("the package cannot be handed on:\n  " + "\n  ".join(problems))


if __name__ == "__main__":
    main()
