"""gRPC channels to other services: windows, message sizes, load balancing, retries."""

import json
from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from servicekit.service_channel import ServiceChannel
from servicekit.tls import Certificates, Material, channel_credentials

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""The largest message in either direction. The limit is deliberate; gRPC's default is 4 MiB."""

WINDOW_OPTIONS: tuple[tuple[str, Any], ...] = (
    # Without these options, a server may write up to 6 MiB ahead of the reader; with them, about 20 KiB. A reader
    # that stops therefore stops the writer.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 16384),
)

SIZE_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # An error's details travel as metadata.
    ("grpc.max_metadata_size", 32 * 1024),
)


def open_channel(
    target: str, services: Sequence[ServiceDescriptor], certificates: Certificates | None = None
) -> grpc.aio.Channel:
    """Return a channel that distributes its calls over all addresses of the target.

    gRPC tries a call up to three times within its deadline, if it has received no response. It retries any call
    that a stopping server refuses (CANCELLED), and a unary call that fails with UNAVAILABLE because it finds no
    server, its connection breaks, or the service refuses it. A service may run such a call several times, so every
    unary method must be safe to repeat. For a stream, gRPC buffers up to 256 KiB. It does not retry a call that the
    client cancels. Each call sets its own time-out, because with retries grpcio ignores the time-outs of the
    service configuration.

    Args:
        target: ``host:port`` or ``dns:///service:port``.
        services: Descriptors of the called services, whose methods get a retry policy.
        certificates: For mutual TLS; the server's certificate must contain the target's host. None: no TLS.
    """
    options = (
        *WINDOW_OPTIONS,
        *SIZE_OPTIONS,
        ("grpc.service_config", json.dumps(service_config(services))),
        ("grpc.enable_retries", 1),
        # A channel finds a restarted service soon, also at another address. gRPC's default is up to two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.dns_min_time_between_resolutions_ms", 500),
        # Despite its name, this option is the time limit of an attempt to connect.
        ("grpc.min_reconnect_backoff_ms", 5000),
        # Services never connect through a proxy from the environment.
        ("grpc.enable_http_proxy", 0),
        # With these options, the channel detects within seconds that a peer has vanished or hangs. Both time-outs
        # are needed: only `ping_timeout_ms`, a minute by default, applies if the network acknowledges data and the
        # process hangs.
        ("grpc.keepalive_time_ms", 3_000),
        ("grpc.keepalive_timeout_ms", 3_000),
        ("grpc.http2.ping_timeout_ms", 3_000),
        ("grpc.use_local_subchannel_pool", 1),
    )

    def open_with(material: Material | None) -> grpc.aio.Channel:
        if material is None:
            return grpc.aio.insecure_channel(target, options=options)
        return grpc.aio.secure_channel(target, channel_credentials(material), options=options)

    return ServiceChannel(target, open_with, certificates)


def service_config(services: Sequence[ServiceDescriptor]) -> dict[str, Any]:
    """Return the channel's gRPC service configuration: https://grpc.io/docs/guides/service-config."""
    unary: list[dict[str, str]] = []
    streams: list[dict[str, str]] = []
    for service in services:
        for method in service.methods:
            name = {"service": service.full_name, "method": method.name}
            (streams if method.client_streaming or method.server_streaming else unary).append(name)
    return {
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [
            {"name": unary, "retryPolicy": _retry_policy("UNAVAILABLE", "CANCELLED")},
            {"name": streams, "retryPolicy": _retry_policy("CANCELLED")},
        ],
    }


def _retry_policy(*codes: str) -> dict[str, Any]:
    return {
        "maxAttempts": 3,
        "initialBackoff": "0.05s",
        "maxBackoff": "0.5s",
        "backoffMultiplier": 3,
        "retryableStatusCodes": codes,
    }
