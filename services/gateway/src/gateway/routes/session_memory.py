"""Adds the stored messages of a session to turns, for clients that send only the newest message."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError
from servicekit.principal import Principal

from gateway.dialects.exchange import Exchange
from gateway.domain import Action, Batch, Delta, Detections, Direction, Done, Message
from gateway.domain.memory import StoredSession, is_name, trim_messages
from gateway.domain.turn import Session
from gateway.frontends.profiles import Frontend
from gateway.ports.memory import Memory

_log = structlog.get_logger(__name__)
_MAX_TRIES = 3
_STORE_SECONDS = 2.0


class SessionMemory:
    """Adds the messages of a session to a turn, and stores the turn after its answer.

    Args:
        memory: Stores the sessions.
        default: Whether to store sessions for dialects that expect it, if the profile has no setting.
    """

    def __init__(self, memory: Memory, *, default: bool) -> None:
        self._memory = memory
        self._default = default

    async def recall(
        self, exchange: Exchange, principal: Principal, frontend: Frontend, deadline: Deadline
    ) -> "TurnRecorder | None":
        """Insert the stored messages into a turn that has only the newest message.

        Args:
            exchange: The exchange, whose turn this method changes.
            principal: The caller. The sessions of other callers are not visible.
            frontend: The profile. The sessions of other front ends are not visible.
            deadline: The time by which the session must be read.

        Returns:
            The recorder that stores the turn, or None if the turn is not stored.

        Raises:
            Unavailable: The session cannot be read. An answer without it would be wrong.
        """
        session = exchange.turn.session
        if session is None:
            return None
        is_enabled = session.expects_memory and self._default if frontend.memory is None else frontend.memory
        if not is_enabled or not is_name(session.name):
            return None
        stored_session: StoredSession | None
        if session.is_new:
            try:
                stored_session = await self._memory.begin(principal, frontend.name, session.name, deadline)
            except CausewayError as error:
                _log.warning("a session is not stored", error=error.message)
                return None
        else:
            stored_session = await self._memory.read(principal, frontend.name, session.name, deadline)
        if stored_session is None:
            return None
        turn = exchange.turn
        conversation = (*turn.history, Message("user", turn.question))
        if stored_session.messages and not session.is_whole:
            system = tuple(message for message in turn.history if message.role == "system")
            others = tuple(message for message in turn.history if message.role != "system")
            exchange.turn = replace(turn, history=(*system, *stored_session.messages, *others))
        return TurnRecorder(self._memory, principal, frontend.name, session, stored_session, conversation)


class TurnRecorder:
    """Stores one turn when its answer is complete.

    Args:
        memory: Stores the sessions.
        principal: The caller.
        profile: Name of the front end.
        session: The turn's session.
        stored_session: The stored messages.
        conversation: The messages of the request.
    """

    def __init__(
        self,
        memory: Memory,
        principal: Principal,
        profile: str,
        session: Session,
        stored_session: StoredSession,
        conversation: tuple[Message, ...],
    ) -> None:
        self._memory = memory
        self._key = principal, profile, session.name
        self._session = session
        self._stored_session = stored_session
        self._conversation = conversation
        self._texts: list[str] = []
        self._blocked = False

    async def through(self, answer: AsyncGenerator[Batch, None]) -> AsyncGenerator[Batch, None]:
        """Yield the batches of the answer. Before the last batch, store the turn for the next request.

        A failure to store the turn is only logged.
        """
        async with aclosing(answer) as batches:
            async for batch in batches:
                for event in batch:
                    if type(event) is Delta:
                        if event.choice == 0:
                            self._texts.append(event.text)
                    elif type(event) is Detections and event.direction is Direction.INPUT:
                        self._blocked |= any(finding.action is Action.BLOCK for finding in event.findings)
                if type(batch[-1]) is Done:
                    await self._store()
                yield batch

    async def _store(self) -> None:
        text = "".join(self._texts)
        if self._blocked or not text:
            return  # a turn that is blocked or has no answer is not stored
        conversation = (*self._conversation, Message("assistant", text))
        stored_session: StoredSession | None = self._stored_session
        deadline = Deadline.after(_STORE_SECONDS)
        try:
            for _ in range(_MAX_TRIES):
                if stored_session is None:
                    return  # the session was deleted meanwhile
                before = () if self._session.is_whole else stored_session.messages
                messages = trim_messages((*before, *conversation))
                if await self._memory.replace(*self._key, messages, stored_session.revision, deadline):
                    return
                # Another turn of the same session was stored in the meantime.
                stored_session = await self._memory.read(*self._key, deadline)
            _log.warning("a turn was not stored", error="the session changes too often")
        except CausewayError as error:
            _log.warning("a turn was not stored", error=error.message)
