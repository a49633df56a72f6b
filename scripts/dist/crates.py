"""The crates that the program of this platform is compiled from, as Cargo.lock pins them."""

import json
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Crate:
    """A crate, and what it is needed for."""

    name: str
    version: str
    licence: str
    repository: str | None
    checksum: str | None
    folder: Path
    # False: used only by the build; the program contains none of it.
    is_in_program: bool = False
    # True: part of this repository, under the licence of the program.
    is_ours: bool = False
    dependencies: list[str] = field(default_factory=list)

    @property
    def purl(self) -> str:
        return f"pkg:cargo/{self.name}@{self.version.replace('+', '%2B')}"


def host() -> str:
    lines = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout.splitlines()
    return next(line.removeprefix("host: ") for line in lines if line.startswith("host: "))


def metadata() -> dict:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--no-default-features"]
    command += ["--filter-platform", host()]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


def reach(nodes: dict, start: str, kinds: set[str | None]) -> set[str]:
    """The packages that this one needs, itself included, by dependencies of these kinds."""
    found, waiting = set(), [start]
    while waiting:
        package = waiting.pop()
        if package in found:
            continue
        found.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] in kinds for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    return found


def crates() -> tuple[Crate, list[Crate]]:
    """The program's own crate, and all others by name and version. Crates that only tests need are left out."""
    known = metadata()
    nodes = {node["id"]: node for node in known["resolve"]["nodes"]}
    packages = {package["id"]: package for package in known["packages"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock}
    root = known["resolve"]["root"]
    # Procedural macros and their dependencies run in the compiler.
    macros = {id for id, package in packages.items() if "proc-macro" in package["targets"][0]["kind"]}
    outside = {id: {**node, "deps": []} if id in macros else node for id, node in nodes.items()}
    program = reach(outside, root, {None}) - macros
    all_ids = reach(nodes, root, {None, "build"})
    made = {}
    for id in all_ids:
        package = packages[id]
        made[id] = Crate(
            name=package["name"],
            version=package["version"],
            licence=(package["license"] or "").replace("/", " OR ").replace("  ", " "),
            repository=package["repository"],
            checksum=checksums.get((package["name"], package["version"])),
            folder=Path(package["manifest_path"]).parent,
            is_in_program=id in program,
            is_ours=package["source"] is None,
        )
    for id, crate in made.items():
        needed = [made[dependency["pkg"]].purl for dependency in nodes[id]["deps"] if dependency["pkg"] in made]
        crate.dependencies = sorted(set(needed))
    own = made.pop(root)
    return own, sorted(made.values(), key=lambda crate: (crate.name, crate.version))
