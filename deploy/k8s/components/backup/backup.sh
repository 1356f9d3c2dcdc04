#!/bin/sh
# Make a backup in a folder named by the time, then remove all folders except the newest $KEEP.
set -eu
backups=${BACKUPS:-/backups}
certificates=${CERTIFICATES:-/etc/causeway/tls}
if [ -e "$certificates/tls.crt" ]; then
  export CAUSEWAY_TLS_CERT_FILE="$certificates/tls.crt" CAUSEWAY_TLS_KEY_FILE="$certificates/tls.key"
  export CAUSEWAY_TLS_CA_FILE="$certificates/ca.crt"
fi
causeway backup "$backups/$(date -u +%Y%m%dT%H%M%SZ)"
# Folders of failed attempts also count, so they are removed in time, too.
ls -1 "$backups" | grep -E '^[0-9]{8}T[0-9]{6}Z$' | sort -r | tail -n "+$((KEEP + 1))" | while read -r old; do
  rm -r -- "${backups:?}/$old"
done
