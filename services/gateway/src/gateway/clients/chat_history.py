"""Store the chat history in NATS, with two entries per conversation.

The head has the title and the time, so that a list of conversations reads little data. The other entry has the
compressed messages.
"""

import asyncio
import contextlib
import time
import zlib
from collections.abc import Awaitable, Callable

import msgspec
from nats.js.errors import KeyNotFoundError
from nats.js.kv import KeyValue
from servicekit import key_value, keys
from servicekit.deadline import Deadline
from servicekit.errors import Conflict, NotFound, PayloadTooLarge
from servicekit.principal import Principal

from gateway.clients.nats_calls import call_nats
from gateway.domain.chat_history import MAX_CONVERSATIONS, Conversation, ConversationPage, page

# NATS limits the payload and the headers of a message together to 1 MiB (``max_payload``).
_MAX_BYTES = 1_000_000
_TARGET = "The chat history"


class NatsHistory:
    """`ports.chat_history.History` over a key-value bucket.

    Args:
        bucket: Returns the bucket, or raises `Unavailable` while NATS is unavailable.
        limit: The maximum number of conversations of one user.
    """

    def __init__(self, bucket: Callable[[], Awaitable[KeyValue]], *, limit: int = MAX_CONVERSATIONS) -> None:
        self._bucket = bucket
        self._limit = limit

    async def save(
        self, principal: Principal, conversation_id: str, title: str, answers_json: bytes, deadline: Deadline
    ) -> Conversation:
        """See `ports.chat_history.History`."""
        bucket = await self._bucket()
        # Compress in a thread, because a long conversation would delay all running answers.
        packed = await asyncio.to_thread(zlib.compress, answers_json)
        if len(packed) > _MAX_BYTES:
            raise PayloadTooLarge(
                "The conversation is too long for the history. Start a new conversation.", field="answers"
            )
        head_key = keys.history_head_key(principal.tenant, principal.owner, conversation_id)
        try:
            await self._get(bucket, keys.history_head_key, principal, conversation_id, deadline)
        except KeyNotFoundError:
            if len(await self._heads(bucket, principal, deadline)) >= self._limit:
                raise Conflict(
                    f"The history has {self._limit} conversations, the maximum. Delete some to save this one."
                ) from None
        saved = Conversation(conversation_id, title, time.time_ns() // 1_000_000)
        # Write the head last, so that each listed conversation has its messages.
        answers_key = keys.history_answers_key(principal.tenant, principal.owner, conversation_id)
        await call_nats(bucket.put(answers_key, packed), deadline, _TARGET)
        await call_nats(bucket.put(head_key, msgspec.json.encode(saved)), deadline, _TARGET)
        for former in principal.owners[1:]:
            await self._purge(bucket, principal.tenant, former, conversation_id, deadline)
        return saved

    async def read(self, principal: Principal, conversation_id: str, deadline: Deadline) -> bytes:
        """See `ports.chat_history.History`."""
        bucket = await self._bucket()
        try:
            entry = await self._get(bucket, keys.history_answers_key, principal, conversation_id, deadline)
        except KeyNotFoundError:
            raise _missing(conversation_id) from None
        return await asyncio.to_thread(zlib.decompress, entry.value or b"")

    async def page(self, principal: Principal, count: int, token: str, deadline: Deadline) -> ConversationPage:
        """See `ports.chat_history.History`."""
        return page(await self._heads(await self._bucket(), principal, deadline), count, token)

    async def delete(self, principal: Principal, conversation_id: str, deadline: Deadline) -> None:
        """See `ports.chat_history.History`."""
        bucket = await self._bucket()
        try:
            # The messages exist at least as long as the head, because `save` writes them first.
            await self._get(bucket, keys.history_answers_key, principal, conversation_id, deadline)
        except KeyNotFoundError:
            raise _missing(conversation_id) from None
        for owner in principal.owners:
            await self._purge(bucket, principal.tenant, owner, conversation_id, deadline)

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """See `ports.chat_history.History`."""
        bucket = await self._bucket()
        # Delete all entries instead of the listed conversations, because an interrupted save may have left messages
        # without a head.
        names = await call_nats(key_value.current_keys(bucket, keys.history_of(tenant, owner)), deadline, _TARGET)
        for name in names:
            await call_nats(bucket.purge(name), deadline, _TARGET)
        return len({name.rpartition(".")[2] for name in names})

    async def _get(
        self,
        bucket: KeyValue,
        key: Callable[[str, str, str], str],
        principal: Principal,
        conversation_id: str,
        deadline: Deadline,
    ) -> KeyValue.Entry:
        """Return an entry of a conversation, which may be stored under a former name of the user."""
        *others, last = principal.owners
        for owner in others:
            with contextlib.suppress(KeyNotFoundError):
                return await call_nats(bucket.get(key(principal.tenant, owner, conversation_id)), deadline, _TARGET)
        return await call_nats(bucket.get(key(principal.tenant, last, conversation_id)), deadline, _TARGET)

    async def _purge(
        self, bucket: KeyValue, tenant: str, owner: str, conversation_id: str, deadline: Deadline
    ) -> None:
        for key in (keys.history_head_key, keys.history_answers_key):
            await call_nats(bucket.purge(key(tenant, owner, conversation_id)), deadline, _TARGET)

    async def _heads(self, bucket: KeyValue, principal: Principal, deadline: Deadline) -> list[Conversation]:
        found: dict[str, Conversation] = {}
        for owner in reversed(principal.owners):
            # Read only the heads, because a list of all keys would read the whole bucket.
            entries = await call_nats(
                key_value.current_entries(bucket, keys.history_of(principal.tenant, owner, "head")),
                deadline,
                _TARGET,
            )
            heads = [msgspec.json.decode(entry.value or b"", type=Conversation) for entry in entries]
            found |= {head.id: head for head in heads}
        return list(found.values())


def _missing(conversation_id: str) -> NotFound:
    return NotFound(f"There is no conversation {conversation_id[:200]!r} in the history.", resource=conversation_id)
