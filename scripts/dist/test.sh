#!/usr/bin/env bash
# Installs each package of dist/ as a user would, and uses it: without the environment of the build,
# and with the build folder hidden. A part whose tools are missing on this machine prints SKIPPED.
#
# Usage: test.sh [PART ...]      tarball wheel sbom deb container; all of them by default
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/dist/common.sh

# A separate mount namespace hides the build folder, so that the packed program cannot use it.
if [ -z "${STUDYSYNC_DIST_HIDDEN:-}" ] && [ "$system" = linux ]; then
    export STUDYSYNC_DIST_HIDDEN=yes
    # Root of a user namespace can mount, but cannot install a Debian system.
    if [ "$(id -u)" = 0 ]; then export STUDYSYNC_DIST_ROOT=yes; fi
    rights=$([ "$(id -u)" = 0 ] || echo --map-root-user)
    # shellcheck disable=SC2086
    if unshare $rights --mount true 2>/dev/null; then exec unshare $rights --mount --propagation private "$0" "$@"; fi
elif [ "$system" = linux ] && [ -d "$target" ]; then
    mount -t tmpfs none "$target"
fi

parts=("$@")
[ $# -gt 0 ] || parts=(tarball wheel sbom deb container)
dist=$PWD/dist
tests=$PWD/scripts/dist/test
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
(cd "$dist" && sha256sum --quiet --check SHA256SUMS)

# A clean environment: no variables of the build, and a separate home folder.
clean() {
    mkdir -p "$work/home"
    env -i PATH=/usr/bin:/bin HOME="$work/home" TMPDIR="$work" "$@"
}

# The program syncs from its own sandbox, and the rows are there.
syncs() {
    clean "$tests/sync.sh" "$@"
}

test_tarball() {
    local place="$work/a folder with spaces" name
    mkdir -p "$place" "$work/usr-local"
    tar -xzf "$dist"/studysync-*.tar.gz -C "$place"
    name=$(ls "$place")
    syncs "$place/$name/bin/studysync"
    # Installed to a prefix, as the page on installing says, and called through a link elsewhere.
    tar -xzf "$dist"/studysync-*.tar.gz -C "$work/usr-local" --strip-components=1
    ln -s "$work/usr-local/bin/studysync" "$work/link"
    clean "$work/link" --version
    test -s "$work/usr-local/share/man/man1/studysync-backfill.1"
    test -s "$work/usr-local/share/doc/studysync/examples/questions.sql"
    clean bash -c ". '$work/usr-local/share/bash-completion/completions/studysync' && complete -p studysync" >/dev/null
}

test_wheel() {
    local wheel
    wheel=$(echo "$dist"/*.whl)
    python3 -m venv "$work/venv"
    clean "$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
    syncs "$work/venv/bin/studysync"
    clean "$work/venv/bin/python" -m studysync --version
    clean "$work/venv/bin/pip" uninstall --quiet --yes studysync
    [ -z "$(find "$work/venv" -name '*studysync*' -o -name 'libduckdb*')" ]
    # Checks the platform tag with another tool. Its result for the bare tag ignores the folder of
    # the library.
    local tag=${wheel##*-none-}
    if python3 -m pip install --quiet --target "$work/auditwheel" auditwheel >/dev/null 2>&1; then
        PYTHONPATH=$work/auditwheel python3 -m auditwheel show "$wheel" | tr '\n' ' ' \
            | grep -q "constrains the platform tag to \"${tag%.whl}\""
    else
        echo "SKIPPED: auditwheel cannot be had from here"
    fi
}

test_sbom() {
    local sbom
    sbom=$(echo "$dist"/*.cdx.json)
    if ! python3 -m pip install --quiet --target "$work/cyclonedx" 'cyclonedx-python-lib[json-validation]' >/dev/null 2>&1; then
        echo "SKIPPED: the schema of CycloneDX cannot be had from here"
        return
    fi
    PYTHONPATH=$work/cyclonedx python3 "$tests/sbom.py" "$sbom"
}

test_deb() {
    "$tests/deb.sh" "$dist"/*.deb
}

test_container() {
    "$tests/container.sh" "$dist"/studysync-*.tar.gz
}

for part in "${parts[@]}"; do
    echo "== $part"
    "test_$part"
done
echo "every package works"
