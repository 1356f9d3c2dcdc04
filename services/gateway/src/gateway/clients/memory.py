"""Store the conversations of sessions in NATS.

The bucket deletes a session `CAUSEWAY_MEMORY_HOURS` after its last turn.
"""

from collections.abc import Awaitable, Callable

import msgspec
from nats.js.errors import KeyNotFoundError
from nats.js.kv import KeyValue
from servicekit import key_value, keys
from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.clients.nats_calls import call_nats
from gateway.domain.memory import StoredSession
from gateway.domain.turn import Message

_TARGET = "The memory of conversations"
_messages_decoder = msgspec.json.Decoder(list[tuple[str, str]])


class NatsMemory:
    """`ports.memory.Memory` over a key-value bucket.

    Args:
        bucket: Returns the bucket, or raises `Unavailable` while NATS is unavailable.
    """

    def __init__(self, bucket: Callable[[], Awaitable[KeyValue]]) -> None:
        self._bucket = bucket

    async def begin(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> StoredSession:
        """See `ports.memory.Memory`."""
        bucket = await self._bucket()
        revision = await call_nats(bucket.put(_key(principal, profile, name), b"[]"), deadline, _TARGET)
        return StoredSession((), revision)

    async def read(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> StoredSession | None:
        """See `ports.memory.Memory`."""
        bucket = await self._bucket()
        try:
            entry = await call_nats(bucket.get(_key(principal, profile, name)), deadline, _TARGET)
        except KeyNotFoundError:
            return None
        stored_messages = _messages_decoder.decode(entry.value or b"[]")
        return StoredSession(tuple(Message(role, text) for role, text in stored_messages), entry.revision or 0)

    async def replace(
        self,
        principal: Principal,
        profile: str,
        name: str,
        messages: tuple[Message, ...],
        revision: int,
        deadline: Deadline,
    ) -> bool:
        """See `ports.memory.Memory`."""
        bucket = await self._bucket()
        value = msgspec.json.encode([(message.role, message.text) for message in messages])
        return await call_nats(
            key_value.try_write(bucket.update(_key(principal, profile, name), value, revision)), deadline, _TARGET
        )

    async def delete(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> bool:
        """See `ports.memory.Memory`."""
        if await self.read(principal, profile, name, deadline) is None:
            return False
        bucket = await self._bucket()
        await call_nats(bucket.purge(_key(principal, profile, name)), deadline, _TARGET)
        return True

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """See `ports.memory.Memory`."""
        bucket = await self._bucket()
        session_keys = await call_nats(
            key_value.current_keys(bucket, keys.user_pattern(tenant, owner)), deadline, _TARGET
        )
        for key in session_keys:
            await call_nats(bucket.purge(key), deadline, _TARGET)
        return len(session_keys)


def _key(principal: Principal, profile: str, name: str) -> str:
    return keys.memory_key(principal.tenant, principal.owner, profile, name)
