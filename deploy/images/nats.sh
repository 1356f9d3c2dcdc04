#!/bin/sh
# Makes the image of NATS from the server that the tests use, for machines without an image registry. Like the official
# image, it contains only the server.
#
#   nats.sh nats:2.15.1 .venv/bin/nats-server
set -eu
tag=$1
server=$2
docker=${DOCKER:-docker}
tar --create --numeric-owner --owner=0 --group=0 --mtime=@1 --directory="$(dirname "$server")" nats-server |
  "$docker" import --change 'ENTRYPOINT ["/nats-server"]' - "$tag"
