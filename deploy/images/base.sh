#!/bin/sh
# Makes a base image from Debian's packages, for machines that can reach these but no image registry. It contains
# Python, certificates, the C++ library that wheels need, and Debian's essential packages, but no program that could
# download packages. The same packages give the same image, byte by byte.
#
#   base.sh causeway/base:bookworm
set -eu
tag=$1
docker=${DOCKER:-docker}
command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 69; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The pin keeps the package usrmerge out, which depends on perl. The setup hook has already done its work.
SOURCE_DATE_EPOCH=1 mmdebstrap --quiet --variant=essential \
  --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
  --setup-hook='printf "Package: usrmerge\nPin: release *\nPin-Priority: -1\n" >"$1/etc/apt/preferences.d/base"' \
  --customize-hook='rm "$1/etc/apt/preferences.d/base"' \
  --include=usr-is-merged,python3,python3-venv,libstdc++6,ca-certificates \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  bookworm "$work/base.tar"
"$docker" import "$work/base.tar" "$tag"
