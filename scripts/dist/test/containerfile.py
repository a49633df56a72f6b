"""Does the steps of a Containerfile in folders, one for each stage, and says how the image that comes out is started.

Usage: containerfile.py build [--stage N] FILE FOLDER...     from stage N on; each folder is its stage's base image
       containerfile.py describe FILE                        what an engine would start, as lines for a shell
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

# Instructions that change only the metadata of the image.
DESCRIBING = {"VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD", "HEALTHCHECK"}
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@dataclass
class Stage:
    """One stage of the file: its name, and its instructions in order."""

    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str:
        found = [text for name, text in self.steps if name == instruction]
        if not found:
            raise SystemExit(f"the image has no {instruction}")
        return found[-1]


def read(path: str) -> list[Stage]:
    lines = [line for line in Path(path).read_text().splitlines() if not line.lstrip().startswith("#")]
    stages: list[Stage] = []
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        instruction, _, text = line.strip().partition(" ")
        if instruction == "FROM":
            stages.append(Stage(name=text.split(" AS ")[1] if " AS " in text else str(len(stages))))
        else:
            stages[-1].steps.append((instruction, text.strip()))
    return stages


class Builder:
    """The folder of a stage, and the folders of those before it."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders
        self.context = Path.cwd()

    def build(self, stage: Stage) -> None:
        folder, workdir, environment = self.folders[stage.name], "/", dict(ENVIRONMENT)
        for instruction, text in stage.steps:
            print(f"  {instruction} {text}", flush=True)
            if instruction == "WORKDIR":
                workdir = text
                self._at(folder, workdir).mkdir(parents=True, exist_ok=True)
            elif instruction == "ENV":
                name, _, value = text.partition("=")
                environment[name] = value
            elif instruction == "COPY":
                self._copy(folder, workdir, text)
            elif instruction == "RUN":
                self._run(folder, workdir, environment, text)
            elif instruction != "USER" and instruction not in DESCRIBING:
                raise SystemExit(f"this reads no {instruction}")

    def _at(self, folder: Path, path: str) -> Path:
        return folder / path.lstrip("/")

    def _copy(self, folder: Path, workdir: str, text: str) -> None:
        origin = re.match(r"--from=(\S+) ", text)
        source, target = text[origin.end() if origin else 0 :].split()
        to = self._at(folder, os.path.join(workdir, target))
        if origin:
            shutil.copytree(self._at(self.folders[origin[1]], source), to, symlinks=True, dirs_exist_ok=True)
            return
        shutil.copytree(self.context / source, to, symlinks=True, dirs_exist_ok=True, ignore=self._ignored)

    def _ignored(self, folder: str, names: list[str]) -> set[str]:
        """Names that .dockerignore leaves out: `**/NAME` in any folder, others at the top alone."""
        lines = [line for line in (self.context / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
        is_top = Path(folder).resolve() == self.context.resolve()
        return {name for name in names if f"**/{name}" in lines or (is_top and name in lines)}

    def _run(self, folder: Path, workdir: str, environment: dict[str, str], text: str) -> None:
        """Runs it as an engine does: in the folder as root of all files. What apt needs to reach its archive is lent to it."""
        script = f"cd {shlex.quote(workdir)} && {text}"
        lent = ["etc/resolv.conf", "etc/apt/apt.conf.d", "proc", "dev"]
        mounts = [f"mount --rbind /{name} {shlex.quote(str(folder / name))}" for name in lent if (folder / name).exists()]
        command = " && ".join([*mounts, f"exec chroot {shlex.quote(str(folder))} /bin/sh -c {shlex.quote(script)}"])
        # On this machine Rust may be in another folder than in the image.
        for name in ("CARGO_HOME", "RUSTUP_HOME"):
            if name in os.environ:
                environment = {**environment, name: os.environ[name]}
        cargo = os.path.dirname(shutil.which("cargo") or "/usr/bin/cargo")
        environment = {**environment, "PATH": f"{environment['PATH']}:{cargo}", "HOME": "/root"}
        unshared = ["unshare", "--mount", "--propagation", "private", "sh", "-c", command]
        subprocess.run(unshared, check=True, env=environment)


def describe(stage: Stage) -> None:
    entrypoint, command = json.loads(stage.last("ENTRYPOINT")), json.loads(stage.last("CMD"))
    check = json.loads(stage.last("HEALTHCHECK").partition(" CMD ")[2])
    variables = [f"PATH={ENVIRONMENT['PATH']}", *(text for name, text in stage.steps if name == "ENV")]
    for name, words in [("entrypoint", entrypoint), ("command", command), ("check", check), ("variables", variables)]:
        print(f"{name}=({' '.join(map(shlex.quote, words))})")
    user, _, group = stage.last("USER").partition(":")
    for name, text in [("user", user), ("group", group), ("workdir", stage.last("WORKDIR"))]:
        print(f"{name}={shlex.quote(text)}")
    print(f"volume={shlex.quote(stage.last('VOLUME'))}")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[0] == "describe":
        describe(read(arguments[1])[-1])
        return
    first = 0
    if arguments[1] == "--stage":
        first, arguments = int(arguments[2]), [arguments[0], *arguments[3:]]
    stages = read(arguments[1])
    builder = Builder(dict(zip((stage.name for stage in stages), map(Path, arguments[2:]), strict=True)))
    for stage in stages[first:]:
        builder.build(stage)


if __name__ == "__main__":
    main()
