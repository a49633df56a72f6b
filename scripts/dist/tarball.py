"""Packs the staged files into FOLDER/NAME.tar.gz. The same files make the same bytes.

Usage: tarball.py STAGE FOLDER NAME
"""

import gzip
import os
import sys
import tarfile
from pathlib import Path


def main() -> None:
    stage, folder, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    moment = int(os.environ["SOURCE_DATE_EPOCH"])

    def normalized(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        is_executable = entry.isdir() or entry.mode & 0o100
        entry.mode = 0o755 if is_executable else 0o644
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = moment
        return entry

    with (
        open(folder / f"{name}.tar.gz", "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        tar.add(stage, name, recursive=False, filter=normalized)
        for path in sorted(stage.rglob("*")):
            tar.add(path, f"{name}/{path.relative_to(stage)}", recursive=False, filter=normalized)


if __name__ == "__main__":
    main()
