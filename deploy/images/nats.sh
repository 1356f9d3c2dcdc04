#!/bin/sh
# Makes the image of nats from the server that the tests run with, for machines without an image registry: like the
# official one it holds the server and nothing else.
#
#   nats.sh nats:2.15.1 .venv/bin/nats-server
set -eu
tag=$1
server=$2
docker=${DOCKER:-docker}
tar --create --numeric-owner --owner=0 --group=0 --mtime=@1 --directory="$(dirname "$server")" nats-server |
  "$docker" import --change 'ENTRYPOINT ["/nats-server"]' - "$tag"
