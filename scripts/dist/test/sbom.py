"""Checks an SBOM against the schema of CycloneDX and against Cargo.lock.

Usage: sbom.py FILE
"""

import json
import sys
import tomllib
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = Path(sys.argv[1]).read_text()
problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
assert problem is None, problem

bom = json.loads(text)
lock = tomllib.loads((Path(__file__).parents[3] / "Cargo.lock").read_text())["package"]
# Crates of this repository come from no registry, so Cargo.lock has no checksum for them.
ours = {package["name"] for package in lock if "source" not in package}
pinned = {
    (package["name"], package["version"]): [{"alg": "SHA-256", "content": package["checksum"]}]
    for package in lock
    if package["name"] not in ours
}
crates = [part for part in bom["components"] if part["purl"].startswith("pkg:cargo/")]
assert len(crates) > 100, len(crates)
for part in crates:
    assert part.get("hashes") == (None if part["name"] in ours else pinned[part["name"], part["version"]]), part
    assert part["licenses"], part
refs = {part["bom-ref"] for part in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
for entry in bom["dependencies"]:
    assert {entry["ref"], *entry["dependsOn"]} <= refs, entry
assert any(part["name"] == "libduckdb" and part["hashes"] for part in bom["components"])
print(f"{len(bom['components'])} components")
