#!/bin/sh
# Make a backup in a folder named by the time, then remove all folders that are older than the newest $KEEP backups.
set -eu
backups=${BACKUPS:-/backups}
certificates=${CERTIFICATES:-/etc/causeway/tls}
if [ -e "$certificates/tls.crt" ]; then
  export CAUSEWAY_TLS_CERT_FILE="$certificates/tls.crt" CAUSEWAY_TLS_KEY_FILE="$certificates/tls.key"
  export CAUSEWAY_TLS_CA_FILE="$certificates/ca.crt"
fi
causeway backup "$backups/$(date -u +%Y%m%dT%H%M%SZ)"
# The folder of a failed attempt has no backup.json. It does not count, and is removed with the backups of its time.
kept=0
ls -1 "$backups" | grep -E '^[0-9]{8}T[0-9]{6}Z$' | sort -r | while read -r folder; do
  if [ "$kept" -ge "$KEEP" ]; then
    rm -r -- "${backups:?}/$folder"
  elif [ -e "$backups/$folder/backup.json" ]; then
    kept=$((kept + 1))
  fi
done
