"""The creation of NATS' streams and buckets, their size limits, and NATS' errors when there is no space."""

import contextlib
from collections.abc import Iterator

from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StreamConfig
from nats.js.errors import APIError, BucketNotFoundError, NotFoundError
from nats.js.kv import KeyValue

from servicekit.errors import Unavailable

MEMORY_BYTES = 64 * 1024 * 1024
"""Size limit in bytes of the bucket of the conversation memory. A full bucket drops its oldest sessions."""

RESPONSE_BYTES = 256 * 1024 * 1024
"""Default size limit in bytes of the bucket of stored responses and conversations, and of the store of large
responses. When one of them is full, it drops its oldest entries."""

RESPONSE_LOG_BYTES = 256 * 1024 * 1024
"""Default size limit in bytes of the stream with the events of stored responses. A full stream drops the oldest."""

RESPONSE_JOB_BYTES = 64 * 1024 * 1024
"""Size limit in bytes of the queue of requests for background responses. A full queue refuses further requests."""

STREAM_BYTES = 1024 * 1024 * 1024
"""Default size limit of a stream in bytes."""
STREAM_SETTING = "CAUSEWAY_NATS_STREAM_BYTES"
"""The environment variable that changes the default."""
_STORAGE_EXCEEDED = 10047
_FULL = (10002, 10023, _STORAGE_EXCEEDED)
"""NATS' error codes for an exhausted account, an exhausted server and a full store (see ``server/errors.json`` of
nats-server)."""
_NOT_STORED = 10077
"""NATS' error code for a message that the server did not store; only its description contains the reason."""


@contextlib.contextmanager
def space_reserved(name: str, size: int, setting: str = STREAM_SETTING) -> Iterator[None]:
    """Convert NATS' error for insufficient storage to `Unavailable`, in a block that creates or updates a stream.

    NATS reserves the whole size limit of a stream when it creates or updates the stream.

    Args:
        name: The name of the stream.
        size: Its size limit in bytes.
        setting: The environment variable that the error message advises to lower. `ensure_bucket` uses the default
            for all buckets, even for those with a constant size limit.

    Raises:
        Unavailable: The server does not have enough space.
    """
    try:
        yield
    except APIError as error:
        if error.err_code != _STORAGE_EXCEEDED:
            raise
        raise Unavailable(
            f"NATS has no space for {name}, which reserves {size} bytes. Give JetStream more space "
            f"(max_file_store), or lower {setting}."
        ) from error


async def ensure_stream(jetstream: JetStreamContext, config: StreamConfig, setting: str = STREAM_SETTING) -> int:
    """Create a stream if it is missing, and return its creation time in seconds since 1970.

    Args:
        jetstream: The JetStream context.
        config: The configuration of a new stream. An existing stream keeps its own configuration.
        setting: The environment variable that sets the size limit, for the error message.

    Raises:
        Unavailable: The server does not have enough space.
    """
    assert config.name is not None
    try:
        info = await jetstream.stream_info(config.name)
    except NotFoundError:
        with space_reserved(config.name, config.max_bytes or 0, setting):
            info = await jetstream.add_stream(config)
    return int(info.created.timestamp()) if info.created else 0


async def ensure_bucket(jetstream: JetStreamContext, config: KeyValueConfig) -> KeyValue:
    """Return a bucket; create it if it is missing.

    Args:
        jetstream: The JetStream context.
        config: The configuration of a new bucket. An existing bucket keeps its own configuration.

    Raises:
        Unavailable: The server does not have enough space.
    """
    try:
        return await jetstream.key_value(config.bucket)
    except BucketNotFoundError:
        with space_reserved(config.bucket, config.max_bytes or 0):
            return await jetstream.create_key_value(config)


def is_full(error: BaseException) -> bool:
    """Return whether NATS refused a message because it has no space."""
    if not isinstance(error, APIError):
        return False
    description = error.description or ""
    return error.err_code in _FULL or (
        error.err_code == _NOT_STORED and ("maximum" in description or "no space" in description)
    )
