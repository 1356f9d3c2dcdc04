"""Size limits of NATS' streams, and NATS' errors when there is no space."""

import contextlib
from collections.abc import Iterator

from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import APIError, NotFoundError

from servicekit.errors import Unavailable

MEMORY_BYTES = 64 * 1024 * 1024
"""Size limit of the bucket of stored sessions; a full bucket drops the oldest."""

RESPONSE_BYTES = 256 * 1024 * 1024
"""Size limit of the bucket of stored responses and conversations; a full bucket drops the oldest."""

RESPONSE_LOG_BYTES = 256 * 1024 * 1024
"""Size limit of the stream of the events of stored responses; a full stream drops the oldest."""

RESPONSE_JOB_BYTES = 64 * 1024 * 1024
"""Size limit of the queue of requests for background responses; a full queue refuses further requests."""

STREAM_BYTES = 1024 * 1024 * 1024
"""Default size limit of a stream."""
STREAM_SETTING = "CAUSEWAY_NATS_STREAM_BYTES"
"""The setting that changes the default."""
_STORAGE_EXCEEDED = 10047
_FULL = (10002, 10023, _STORAGE_EXCEEDED)
"""Error codes for no space: in the account, in the server, on the disk (server/errors.json of nats-server)."""
_NOT_STORED = 10077
"""Error code of a message that the server did not store, for any reason."""


@contextlib.contextmanager
def space_reserved(name: str, size: int, setting: str = STREAM_SETTING) -> Iterator[None]:
    """Raise `Unavailable` if the server does not have the space that a new or changed stream reserves.

    Args:
        name: The name of the stream that is created or updated.
        size: Its size limit in bytes.
        setting: The variable with the size limit, for the error message.

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
        config: The configuration; an existing stream is unchanged.
        setting: The variable with the size limit, for the error message.

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


def is_full(error: BaseException) -> bool:
    """Return whether NATS refused a message because it has no space."""
    if not isinstance(error, APIError):
        return False
    description = error.description or ""
    return error.err_code in _FULL or (
        error.err_code == _NOT_STORED and ("maximum" in description or "no space" in description)
    )
