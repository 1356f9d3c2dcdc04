"""Fakes of the ports that store users' data: originals, pictures, sessions, responses and histories in memory."""

import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from gateway.domain import Message, Passage
from gateway.domain.chat_history import MAX_CONVERSATIONS, Conversation, ConversationPage, page
from gateway.domain.memory import StoredSession
from gateway.domain.responses import RESPONSE, Owned, OwnedPage, Stored, is_id
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Conflict, NotFound, PayloadTooLarge
from servicekit.principal import Principal

_MAX_CONVERSATION_BYTES = 1_000_000
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class FakeOriginals:
    """Originals by tenant and name.

    Attributes:
        opened: The names of opened originals.
        failure: An error that `open` raises, or None.
    """

    contents: dict[tuple[str, str], bytes] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    failure: CausewayError | None = None

    @asynccontextmanager
    async def open(
        self, principal: Principal, name: str, size_bytes: int, deadline: Deadline
    ) -> AsyncIterator[Path]:
        """See `ports.documents.Originals`."""
        self.opened.append(name)
        if self.failure is not None:
            raise self.failure
        if (principal.tenant, name) not in self.contents:
            raise NotFound("The original of the document is gone.", resource=name)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "original"
            path.write_bytes(self.contents[principal.tenant, name])
            yield path

    async def forget(self, principal: Principal, index: str, names: Sequence[str]) -> None:
        """See `ports.documents.Originals`."""
        for name in names:
            if keys.is_original_in(principal.tenant, index, name):
                self.contents.pop((principal.tenant, name), None)


@dataclass(slots=True)
class FakePictures:
    """Pictures by tenant, index, document, content and page.

    Attributes:
        forgotten: The calls of `forget`: the index, and the ids of documents or None for all documents.
        failure: An error that each read raises, or None.
    """

    contents: dict[tuple[str, str, str, str, int], bytes] = field(default_factory=dict)
    forgotten: list[tuple[str, tuple[str, ...] | None]] = field(default_factory=list)
    failure: CausewayError | None = None

    async def read(self, principal: Principal, passage: Passage, deadline: Deadline) -> bytes | None:
        """See `ports.answering.Pictures`."""
        if self.failure is not None:
            raise self.failure
        return self.contents.get(
            (principal.tenant, passage.index, passage.document_id, passage.sha256, passage.page)
        )

    async def forget(self, principal: Principal, index: str, document_ids: Sequence[str] | None = None) -> None:
        """See `ports.answering.Pictures`."""
        ids = None if document_ids is None else tuple(document_ids)
        self.forgotten.append((index, ids))
        index_key = (principal.tenant, index)
        self.contents = {
            key: picture
            for key, picture in self.contents.items()
            if key[:2] != index_key or (ids is not None and key[2] not in ids)
        }


@dataclass(slots=True)
class FakeMemory:
    """Sessions by tenant, user, profile and name."""

    sessions: dict[tuple[str, str, str, str], StoredSession] = field(default_factory=dict)
    revision: int = 0

    async def begin(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> StoredSession:
        """See `ports.memory.Memory`."""
        self.revision += 1
        session = StoredSession((), self.revision)
        self.sessions[principal.tenant, principal.owner, profile, name] = session
        return session

    async def read(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> StoredSession | None:
        """See `ports.memory.Memory`."""
        return self.sessions.get((principal.tenant, principal.owner, profile, name))

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
        session = await self.read(principal, profile, name, deadline)
        if session is None or session.revision != revision:
            return False
        self.revision += 1
        self.sessions[principal.tenant, principal.owner, profile, name] = StoredSession(messages, self.revision)
        return True

    async def delete(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> bool:
        """See `ports.memory.Memory`."""
        return self.sessions.pop((principal.tenant, principal.owner, profile, name), None) is not None

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """See `ports.memory.Memory`."""
        own = [key for key in self.sessions if key[:2] == (tenant, owner)]
        for key in own:
            del self.sessions[key]
        return len(own)


@dataclass(slots=True)
class FakeResponses:
    """Responses and conversations by tenant, user and id.

    Attributes:
        limit: The maximum number of responses and conversations of a user. A new one replaces the oldest one.
        failure: An error that each call except `forget` raises, or None.
    """

    limit: int = 10_000
    kept: dict[tuple[str, str], dict[str, Stored]] = field(default_factory=dict)
    revision: int = 0
    failure: CausewayError | None = None

    def _of(self, principal: Principal) -> dict[str, Stored]:
        if self.failure is not None:
            raise self.failure
        return self.kept.setdefault((principal.tenant, principal.owner), {})

    async def save(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored:
        """See `ports.responses.ResponseStore`."""
        self._check(stored)
        own = self._of(principal)
        while len(own) >= self.limit:
            del own[min(own, key=lambda name: name.partition("_")[2])]
        return self._put(own, stored)

    async def replace(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored | None:
        """See `ports.responses.ResponseStore`."""
        self._check(stored)
        own = self._of(principal)
        current = own.get(stored.id)
        if current is None or current.revision != stored.revision:
            return None
        return self._put(own, stored)

    def _put(self, own: dict[str, Stored], stored: Stored) -> Stored:
        self.revision += 1
        own[stored.id] = saved = replace(stored, revision=self.revision)
        return saved

    async def read(self, principal: Principal, stored_id: str, deadline: Deadline) -> Stored | None:
        """See `ports.responses.ResponseStore`."""
        return self._of(principal).get(stored_id)

    async def delete(self, principal: Principal, stored_id: str, deadline: Deadline) -> bool:
        """See `ports.responses.ResponseStore`."""
        return self._of(principal).pop(stored_id, None) is not None

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """See `ports.responses.ResponseStore`."""
        return len(self.kept.pop((tenant, owner), {}))

    async def page(self, tenant: str, count: int, token: str, deadline: Deadline) -> OwnedPage:
        """See `ports.responses.ResponseStore`."""
        found = [each for each in self._of_tenant(tenant) if not token or each.stored.id < token]
        found.sort(key=lambda each: each.stored.id, reverse=True)
        return OwnedPage(tuple(found[:count]), found[count - 1].stored.id if len(found) > count else "")

    async def find(self, tenant: str, name: str, deadline: Deadline) -> Owned | None:
        """See `ports.responses.ResponseStore`."""
        return next((each for each in self._of_tenant(tenant) if each.stored.id == name), None)

    def _of_tenant(self, tenant: str) -> list[Owned]:
        if self.failure is not None:
            raise self.failure
        return [
            Owned(owner, stored, self._size(stored))
            for (response_tenant, owner), own in self.kept.items()
            for stored in own.values()
            if response_tenant == tenant and is_id(stored.id, RESPONSE)
        ]

    @staticmethod
    def _size(stored: Stored) -> int:
        return len(zlib.compress(msgspec.json.encode([stored.object, stored.items]), 1))

    def _check(self, stored: Stored) -> None:
        if self._size(stored) > _MAX_RESPONSE_BYTES:
            raise PayloadTooLarge("The response is too large to be stored. Set store to false.", field="store")


@dataclass(slots=True)
class FakeHistory:
    """Conversations by tenant and user.

    Attributes:
        limit: The maximum number of conversations of a user.
    """

    limit: int = MAX_CONVERSATIONS
    users: dict[tuple[str, str], dict[str, tuple[Conversation, bytes]]] = field(default_factory=dict)

    def _of(self, principal: Principal) -> dict[str, tuple[Conversation, bytes]]:
        own = self.users.setdefault((principal.tenant, principal.owner), {})
        for former in principal.owners[1:]:
            own |= self.users.pop((principal.tenant, former), {})
        return own

    async def save(
        self, principal: Principal, conversation_id: str, title: str, answers_json: bytes, deadline: Deadline
    ) -> Conversation:
        """See `ports.chat_history.History`."""
        own = self._of(principal)
        if len(answers_json) > _MAX_CONVERSATION_BYTES:
            raise PayloadTooLarge("The conversation is too long for the history.", field="answers")
        if conversation_id not in own and len(own) >= self.limit:
            raise Conflict(
                f"The history has {self.limit} conversations, the maximum. Delete some to save this one."
            )
        saved = Conversation(conversation_id, title, time.time_ns() // 1_000_000)
        own[conversation_id] = saved, answers_json
        return saved

    async def read(self, principal: Principal, conversation_id: str, deadline: Deadline) -> bytes:
        """See `ports.chat_history.History`."""
        return self._find(principal, conversation_id)[1]

    async def page(self, principal: Principal, count: int, token: str, deadline: Deadline) -> ConversationPage:
        """See `ports.chat_history.History`."""
        return page((each for each, _ in self._of(principal).values()), count, token)

    async def delete(self, principal: Principal, conversation_id: str, deadline: Deadline) -> None:
        """See `ports.chat_history.History`."""
        self._find(principal, conversation_id)
        del self._of(principal)[conversation_id]

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """See `ports.chat_history.History`."""
        return len(self.users.pop((tenant, owner), {}))

    def _find(self, principal: Principal, conversation_id: str) -> tuple[Conversation, bytes]:
        try:
            return self._of(principal)[conversation_id]
        except KeyError:
            raise NotFound(f"There is no conversation {conversation_id!r}.", resource=conversation_id) from None
