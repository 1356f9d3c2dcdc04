"""How much NATS may keep: what streams set aside, and what it says when there is no room."""

import contextlib
from collections.abc import Iterator

from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import APIError, NotFoundError

from servicekit.errors import Unavailable

MEMORY_BYTES = 64 * 1024 * 1024
"""Of the sessions that are remembered; the oldest go where it is full."""

RESPONSE_BYTES = 256 * 1024 * 1024
"""Of stored responses and conversations; the oldest go where it is full."""

RESPONSE_LOG_BYTES = 256 * 1024 * 1024
"""Of the events of stored responses; the oldest go where it is full."""

RESPONSE_JOB_BYTES = 64 * 1024 * 1024
"""Of the requests of responses that wait for a gateway; what is more is refused."""

STREAM_BYTES = 1024 * 1024 * 1024
"""Most bytes of a stream where nothing else is said."""
STREAM_SETTING = "CAUSEWAY_NATS_STREAM_BYTES"
"""The setting that says otherwise."""
_NO_ROOM = 10047
_FULL = (10002, 10023, _NO_ROOM)
"""What a server says that has no room: for an account, at all, on its disk (server/errors.json)."""
_NOT_STORED = 10077


@contextlib.contextmanager
def set_aside(name: str, size: int, setting: str = STREAM_SETTING) -> Iterator[None]:
    """Explain what is wrong where the server does not have the bytes that a stream sets aside.

    Args:
        name: Of the stream that is made, or given another limit.
        size: Its limit.
        setting: The setting that has it.

    Raises:
        Unavailable: It does not have them.
    """
    try:
        yield
    except APIError as error:
        if error.err_code != _NO_ROOM:
            raise
        raise Unavailable(
            f"NATS has no room for {name}, which may take {size} bytes: give JetStream more (max_file_store), or "
            f"set {setting} lower."
        ) from error


async def ensure_stream(jetstream: JetStreamContext, config: StreamConfig, setting: str = STREAM_SETTING) -> int:
    """Make a stream where it is missing, and return when it was made, in seconds.

    Args:
        jetstream: Makes it.
        config: What it is; one that is there stays as it is.
        setting: The setting that has its size.

    Raises:
        Unavailable: The server does not have the bytes that it sets aside.
    """
    assert config.name is not None
    try:
        info = await jetstream.stream_info(config.name)
    except NotFoundError:
        with set_aside(config.name, config.max_bytes or 0, setting):
            info = await jetstream.add_stream(config)
    return int(info.created.timestamp()) if info.created else 0


def is_full(error: BaseException) -> bool:
    """Whether NATS refused something because there is no room for it."""
    if not isinstance(error, APIError):
        return False
    said = error.description or ""
    return error.err_code in _FULL or (error.err_code == _NOT_STORED and ("maximum" in said or "no space" in said))
