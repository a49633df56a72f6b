#!/usr/bin/env bash
# Makes a folder with a minimal Debian of this machine's release, and some packages. Needs root and
# debootstrap.
#
# Usage: base.sh FOLDER PACKAGE...
set -euo pipefail
folder=$1
shift
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $release" | head -1)
packages=$(IFS=,; echo "$*")
if ! debootstrap --variant=minbase ${packages:+--include="$packages"} "$release" "$folder" "$archive" >"$folder.log" 2>&1; then
    tail -5 "$folder.log" >&2
    exit 1
fi
rm -rf "$folder"/var/cache/apt/archives/*.deb
