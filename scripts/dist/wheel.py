"""Packs the staged program and its library as a Python wheel into FOLDER. The same files make the same bytes.

pip puts the program into the `bin` of the environment and the library into its `lib/studysync`, where the program looks for it. The
platform tag is read off the two files.

Usage: wheel.py STAGE FOLDER VERSION
"""

import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def platform_tag(stage: Path) -> str:
    """The oldest system that has all that the program and its library ask for, as pip names it."""
    files = [stage / "bin/studysync", *sorted((stage / "lib/studysync").glob("libduckdb.*"))]
    if sys.platform == "darwin":
        system, version = "macosx", newest(files, ["otool", "-l"], r"minos (\d+)\.(\d+)")
    else:
        system, version = "manylinux", newest(files, ["objdump", "-T"], r"GLIBC_(\d+)\.(\d+)")
    return f"{system}_{version}_{platform.machine()}"


def newest(files: list[Path], command: list[str], pattern: str) -> str:
    """The highest version that a tool finds in any of the files."""
    found = set()
    for file in files:
        told = subprocess.run([*command, file], check=True, capture_output=True, text=True).stdout
        found |= {(int(major), int(minor)) for major, minor in re.findall(pattern, told)}
    major, minor = max(found)
    return f"{major}_{minor}"


def package_metadata(version: str) -> str:
    readme = (ROOT / "README.md").read_text()
    return f"""Metadata-Version: 2.4
Name: studysync
Version: {version}
Summary: Keeps a warehouse (DuckDB, Parquet) in step with a study feedback service
License-Expression: MIT OR Apache-2.0
License-File: LICENSE
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
License-File: THIRD-PARTY-LICENSES.txt
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{readme}"""


class Wheel:
    """A wheel that is being written."""

    def __init__(self, path: Path) -> None:
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
        self.records: list[str] = []

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(content)}")
        self._write(name, content, mode)

    def finish(self, record: str) -> None:
        self._write(record, "\n".join([*self.records, f"{record},,", ""]).encode(), 0o644)
        self.zip.close()

    def _write(self, name: str, content: bytes, mode: int) -> None:
        entry = zipfile.ZipInfo(name, self.moment)
        entry.create_system = 3  # Unix, for the mode
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, content)


def main() -> None:
    stage, folder, version = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    tag = f"py3-none-{platform_tag(stage)}"
    wheel = Wheel(folder / f"studysync-{version}-{tag}.whl")
    data, info = f"studysync-{version}.data", f"studysync-{version}.dist-info"
    documents = stage / "share/doc/studysync"
    for module in sorted((ROOT / "packaging/python/studysync").glob("*.py")):
        wheel.add(f"studysync/{module.name}", module.read_bytes())
    wheel.add(f"{data}/scripts/studysync", (stage / "bin/studysync").read_bytes(), 0o755)
    for file in sorted(path for top in ("lib", "share") for path in (stage / top).rglob("*") if path.is_file()):
        if documents not in file.parents:
            wheel.add(f"{data}/data/{file.relative_to(stage)}", file.read_bytes())
    wheel.add(f"{info}/METADATA", package_metadata(version).encode())
    tags = f"Wheel-Version: 1.0\nGenerator: studysync\nRoot-Is-Purelib: false\nTag: {tag}\n"
    wheel.add(f"{info}/WHEEL", tags.encode())
    for name in ("LICENSE", "LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-LICENSES.txt"):
        wheel.add(f"{info}/licenses/{name}", (documents / name).read_bytes())
    wheel.add(f"{info}/sboms/studysync.cdx.json", (documents / "sbom.cdx.json").read_bytes())
    wheel.finish(f"{info}/RECORD")


if __name__ == "__main__":
    main()
