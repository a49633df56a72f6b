"""Copies the documents for users and the examples into FOLDER, in the layout of the repository. A link to a file that is not in the package becomes plain text.

Usage: documents.py FOLDER
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

FILES = ["README.md", "CHANGELOG.md", "LICENSE*", "docs/**", "examples/**"]
FOR_CONTRIBUTORS = ("docs/contributing/", "docs/decisions/", "docs/architecture.md", "docs/testing.md", "docs/book.toml", "docs/book.css", "docs/book.js", "docs/SUMMARY.md")
LINK = re.compile(r"(!?)\[([^]]*)\]\(([^)\s]+)\)")


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    listed = subprocess.run(["git", "ls-files", "--", *(f":(glob){file}" for file in FILES)], check=True, capture_output=True, text=True).stdout
    packed = [Path(name) for name in listed.splitlines() if not name.startswith(FOR_CONTRIBUTORS)]
    for path in packed:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for path in packed:
        if path.suffix == ".md":
            target = folder / path
            target.write_text(LINK.sub(lambda link: link_or_text(target, link), target.read_text()))


def link_or_text(page: Path, link: re.Match) -> str:
    path = link[3].partition("#")[0]
    exists = "://" in path or path.startswith("mailto:") or (page.parent / path).exists()
    return link[0] if exists else link[2]


if __name__ == "__main__":
    main()
