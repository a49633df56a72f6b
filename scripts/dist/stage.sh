#!/usr/bin/env bash
# Copies the content of every package into the layout of /usr or /usr/local: the stripped program,
# its library, completions, manual pages, documents and examples.
#
# Usage: stage.sh PROGRAM FOLDER
set -euo pipefail
program=$(realpath "${1:?usage: stage.sh PROGRAM FOLDER}")
mkdir -p "${2:?usage: stage.sh PROGRAM FOLDER}"
stage=$(realpath "$2")
cd "$(dirname "$0")/../.."
. scripts/dist/common.sh

install -d "$stage/bin"
install -m 755 "$program" "$stage/bin/studysync"
strip "$stage/bin/studysync"
# The library stays as its authors released it, so that its checksum can be compared.
if [ -f "$(dirname "$program")/$library" ]; then
    install -d "$stage/lib/studysync"
    install -m 644 "$(dirname "$program")/$library" "$stage/lib/studysync/$library"
fi

completions() {
    install -d "$stage/$(dirname "$2")"
    "$stage/bin/studysync" completions "$1" >"$stage/$2"
}
completions bash share/bash-completion/completions/studysync
completions zsh share/zsh/site-functions/_studysync
completions fish share/fish/vendor_completions.d/studysync.fish

install -d "$stage/share/man/man1"
"$stage/bin/studysync" completions --man "$stage/share/man/man1"

documents=$stage/share/doc/studysync
install -d "$documents" "$documents/systemd"
python3 scripts/dist/documents.py "$documents"
install -m 644 packaging/systemd/* "$documents/systemd"
python3 scripts/dist/sbom.py "$version" >"$documents/sbom.cdx.json"
python3 scripts/dist/licences.py >"$documents/THIRD-PARTY-LICENSES.txt"
