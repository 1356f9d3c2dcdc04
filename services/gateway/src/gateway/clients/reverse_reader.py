"""Read a stream backwards in chunks, because JetStream only reads forwards."""

import uuid
from collections.abc import AsyncGenerator

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

_FIRST_CHUNK, _MAX_CHUNK_LENGTH = 512, 8192
_BATCH_SIZE = 256
_FETCH_SECONDS = 1.0
_MAX_EMPTY_FETCHES = 3


async def newest_first(
    jetstream: JetStreamContext, stream: str, subjects: str, before: int = 0
) -> AsyncGenerator[Msg, None]:
    """Yield the messages of a stream with matching subjects, newest first. The caller must close the iterator.

    Args:
        jetstream: The JetStream context.
        stream: The name of the stream.
        subjects: The pattern of the subjects.
        before: The sequence number below which messages are returned. 0 returns all messages.
    """
    state = (await jetstream.stream_info(stream)).state
    end = min(before - 1, state.last_seq) if before else state.last_seq
    length = _FIRST_CHUNK
    while end >= max(1, state.first_seq):
        start = max(1, state.first_seq, end - length + 1)
        for message in reversed(await _chunk(jetstream, stream, subjects, start, end)):
            yield message
        end, length = start - 1, min(length * 4, _MAX_CHUNK_LENGTH)


async def _chunk(jetstream: JetStreamContext, stream: str, subjects: str, start: int, end: int) -> list[Msg]:
    name = uuid.uuid4().hex
    config = ConsumerConfig(
        name=name,
        filter_subject=subjects,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=start,
        ack_policy=AckPolicy.NONE,
        mem_storage=True,
        inactive_threshold=10.0,
    )
    await jetstream.add_consumer(stream, config)
    subscription = await jetstream.pull_subscribe_bind(stream=stream, name=name)
    try:
        found: list[Msg] = []
        remaining, empty_fetches = (await subscription.consumer_info()).num_pending or 0, 0
        while remaining:
            try:
                messages = await subscription.fetch(min(remaining, _BATCH_SIZE), timeout=_FETCH_SECONDS)
            except nats.errors.TimeoutError:
                # A newer message of the same subject has replaced the expected message, or the server is slow.
                empty_fetches += 1
                remaining = (await subscription.consumer_info()).num_pending or 0
                if remaining and empty_fetches == _MAX_EMPTY_FETCHES:
                    raise
                continue
            for message in messages:
                if message.metadata.sequence.stream > end:
                    return found
                found.append(message)
            remaining = messages[-1].metadata.num_pending
        return found
    finally:
        await subscription.unsubscribe()
        await jetstream.delete_consumer(stream, name)
