"""Writes the software bill of materials of the program as CycloneDX JSON: crates, the C libraries that some of them bring, and libduckdb.

Usage: sbom.py VERSION
"""

import datetime
import json
import os
import re
import subprocess
import sys
import uuid

from crates import ROOT, Crate, crates

SPEC_VERSION = "1.6"
NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


def component_of(crate: Crate) -> dict:
    component = {
        "type": "library",
        "bom-ref": crate.purl,
        "name": crate.name,
        "version": crate.version,
        "scope": "required" if crate.is_in_program else "excluded",
        "purl": crate.purl,
    }
    if crate.checksum:
        component["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
    if crate.licence:
        component["licenses"] = [{"expression": crate.licence}]
    if crate.repository:
        component["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return component


def libduckdb() -> dict:
    """The library that the program is linked with, as the pinned download names it."""
    text = (ROOT / "scripts/fetch-libduckdb.sh").read_text()
    version = re.search(r"^version=(\S+)$", text, re.M)[1]
    system, machine = os.uname().sysname, os.uname().machine
    for name, checksum in re.findall(r"^\s+([\w*-]+)\) release=.* sha256=([0-9a-f]{64}) ;;$", text, re.M):
        if name in (f"{system}-{machine}", f"{system}-*"):
            purl = f"pkg:github/duckdb/duckdb@v{version}"
            return {
                "type": "library",
                "bom-ref": purl,
                "name": "libduckdb",
                "version": version,
                "scope": "required",
                "purl": purl,
                "hashes": [{"alg": "SHA-256", "content": checksum}],
                "licenses": [{"license": {"id": "MIT"}}],
            }
    raise SystemExit(f"no libduckdb is pinned for {system} on {machine}")


def c_sources(all_crates: list[Crate]) -> list[tuple[str, dict]]:
    """C libraries whose source a crate carries, with that crate."""
    found = []
    for crate in all_crates:
        if crate.name == "libsqlite3-sys":
            header = (crate.folder / "sqlite3/sqlite3.h").read_text()
            version = re.search(r'#define SQLITE_VERSION\s+"([^"]+)"', header)[1]
            found.append((crate.purl, "sqlite", version, {"license": {"id": "blessing"}}))
        if crate.name == "zstd-sys":
            version = crate.version.split("+zstd.")[1]
            found.append((crate.purl, "zstd", version, {"expression": "BSD-3-Clause OR GPL-2.0-only"}))
    return [
        (
            crate_purl,
            {
                "type": "library",
                "bom-ref": f"pkg:generic/{name}@{version}",
                "name": name,
                "version": version,
                "scope": "required",
                "purl": f"pkg:generic/{name}@{version}",
                "licenses": [licence],
            },
        )
        for crate_purl, name, version, licence in found
    ]


def main() -> None:
    version = sys.argv[1]
    own, others = crates()
    duckdb = libduckdb()
    carried = c_sources(others)
    needs = {crate.purl: list(crate.dependencies) for crate in [own, *others]}
    for crate in others:
        if crate.name == "libduckdb-sys":
            needs[crate.purl].append(duckdb["bom-ref"])
    for crate_purl, component in carried:
        needs[crate_purl].append(component["bom-ref"])
    components = [component_of(crate) for crate in others] + [component for _, component in carried] + [duckdb]
    rustc = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    moment = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tools": {"components": [{"type": "application", "name": "scripts/dist/sbom.py"}]},
            "component": {
                "type": "application",
                "bom-ref": own.purl,
                "name": own.name,
                "version": version,
                "purl": own.purl,
                "licenses": [{"expression": own.licence}],
            },
            "properties": [{"name": "studysync:compiler", "value": rustc}],
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(needed)} for ref, needed in sorted(needs.items())],
    }
    content = json.dumps(bom, sort_keys=True)
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}"
    print(json.dumps(bom, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
