#!/usr/bin/env bash
# Packs the staged files as a Debian package into FOLDER, with systemd units, a configuration in
# /etc, and its own user. Needs dpkg-deb and dpkg-shlibdeps.
#
# Usage: deb.sh STAGE FOLDER
set -euo pipefail
stage=$(realpath "${1:?usage: deb.sh STAGE FOLDER}")
folder=$(realpath "${2:?usage: deb.sh STAGE FOLDER}")
cd "$(dirname "$0")/../.."
. scripts/dist/common.sh

package=$version-1
maintainer="${DEBFULLNAME:-The studysync authors} <${DEBEMAIL:-studysync@example.com}>"
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
documents=$root/usr/share/doc/studysync

install -d "$root/DEBIAN" "$root/usr/lib/systemd/system" "$root/etc/studysync" "$root/usr/share/lintian/overrides"
cp -R "$stage"/* "$root/usr"
mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"

# Removes documents that are elsewhere in the package: systemd reads the units from its own folder,
# and `copyright` has the licences.
rm -rf "$documents/systemd" "$documents"/LICENSE*
install -m 644 packaging/systemd/* "$root/usr/lib/systemd/system"
install -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/studysync"
mv "$documents/CHANGELOG.md" "$documents/changelog"
cat >"$documents/changelog.Debian" <<END
studysync ($package) stable; urgency=medium

  * Version $version; what is new is in changelog.gz.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END
gzip -9n "$documents"/{changelog,changelog.Debian,README.md,sbom.cdx.json,THIRD-PARTY-LICENSES.txt}
gzip -9n "$root"/usr/share/man/man1/*
# In this format, a dot stands for an empty line of a text.
sed 's/^/ /; s/^ $/ ./' LICENSE-MIT >"$work/mit"
sed -e "/^@MIT@\$/{r $work/mit" -e 'd;}' packaging/debian/copyright.in >"$documents/copyright"

python3 scripts/dist/debian_config.py "$stage/bin/studysync" >"$root/etc/studysync/studysync.toml"
echo /etc/studysync/studysync.toml >"$root/DEBIAN/conffiles"
install -m 755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN"

# Finds the packages of the libraries that both files need; our own library is in the package.
mkdir "$work/debian"
printf 'Source: studysync\n\nPackage: studysync\nArchitecture: any\n' >"$work/debian/control"
elf=("$root/usr/bin/studysync")
if [ -d "$root/usr/lib/studysync" ]; then elf+=("$root/usr/lib/studysync/$library"); fi
depends=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info -l"$root/usr/lib/studysync" "${elf[@]}" 2>/dev/null \
    | sed -n 's/^shlibs:Depends=//p')
sed -e "s/@VERSION@/$package/; s/@ARCHITECTURE@/$architecture/; s/@DEPENDS@/$depends/" \
    -e "s/@MAINTAINER@/$maintainer/" \
    -e "s/@SIZE@/$(du -k --apparent-size -s "$root" | cut -f1)/" packaging/debian/control.in >"$root/DEBIAN/control"
(cd "$root" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
dpkg-deb --root-owner-group -Zxz --build "$root" "$folder/studysync_${version}_$architecture.deb" >/dev/null
