"""Adds stored messages to the turns of clients that send only the newest message and their session's name."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError
from servicekit.principal import Principal

from gateway.dialects.exchange import Exchange
from gateway.domain import Action, Batch, Delta, Detections, Direction, Done, Message
from gateway.domain.memory import Remembered, bounded, is_name
from gateway.domain.turn import Session
from gateway.frontends.profiles import Frontend
from gateway.ports.memory import Memory

_log = structlog.get_logger(__name__)
_TRIES = 3
_SECONDS = 2.0


class SessionMemory:
    """Adds the messages of a session to a turn, and stores the turn after its answer.

    Args:
        memory: Stores the sessions.
        usual: Store sessions if the dialect's clients expect it and the profile does not decide.
    """

    def __init__(self, memory: Memory, *, usual: bool) -> None:
        self._memory = memory
        self._usual = usual

    async def recall(
        self, exchange: Exchange, principal: Principal, frontend: Frontend, deadline: Deadline
    ) -> "Remembering | None":
        """Put the stored messages before a turn that has only the newest message.

        Args:
            exchange: Its turn is changed.
            principal: The caller. A session of another caller is unknown.
            frontend: The profile. A session of another front end is unknown.
            deadline: When the call must end.

        Returns:
            The object that stores the turn; None if it must not be stored.

        Raises:
            Unavailable: The session cannot be read. An answer without it would be wrong.
        """
        session = exchange.turn.session
        if session is None:
            return None
        wanted = session.expects_memory and self._usual if frontend.memory is None else frontend.memory
        if not wanted or not is_name(session.name):
            return None
        known: Remembered | None
        if session.is_new:
            try:
                known = await self._memory.begin(principal, frontend.name, session.name, deadline)
            except CausewayError as error:
                _log.warning("a session will not be remembered", error=error.message)
                return None
        else:
            known = await self._memory.read(principal, frontend.name, session.name, deadline)
        if known is None:
            return None
        turn = exchange.turn
        conversation = (*turn.history, Message("user", turn.question))
        if known.messages and not session.is_whole:
            system = tuple(each for each in turn.history if each.role == "system")
            others = tuple(each for each in turn.history if each.role != "system")
            exchange.turn = replace(turn, history=(*system, *known.messages, *others))
        return Remembering(self._memory, principal, frontend.name, session, known, conversation)


class Remembering:
    """Stores one turn, once, when its answer is complete.

    Args:
        memory: Stores the sessions.
        principal: The caller.
        profile: Name of the front end.
        session: The turn's session.
        known: The stored messages.
        conversation: The messages of the request.
    """

    def __init__(
        self,
        memory: Memory,
        principal: Principal,
        profile: str,
        session: Session,
        known: Remembered,
        conversation: tuple[Message, ...],
    ) -> None:
        self._memory = memory
        self._of = principal, profile, session.name
        self._session = session
        self._known = known
        self._conversation = conversation
        self._texts: list[str] = []
        self._stopped = False

    async def through(self, answer: AsyncGenerator[Batch, None]) -> AsyncGenerator[Batch, None]:
        """Yield the answer's batches; store the turn before the last one, for the client's next request."""
        async with aclosing(answer) as batches:
            async for batch in batches:
                for event in batch:
                    if type(event) is Delta:
                        if event.choice == 0:
                            self._texts.append(event.text)
                    elif type(event) is Detections and event.direction is Direction.INPUT:
                        self._stopped |= any(each.action is Action.BLOCK for each in event.findings)
                if type(batch[-1]) is Done:
                    await self._keep()
                yield batch

    async def _keep(self) -> None:
        text = "".join(self._texts)
        if self._stopped or not text:
            return  # a blocked turn is not stored
        conversation = (*self._conversation, Message("assistant", text))
        known: Remembered | None = self._known
        deadline = Deadline.after(_SECONDS)
        try:
            for _ in range(_TRIES):
                if known is None:
                    return  # the session was deleted meanwhile
                before = () if self._session.is_whole else known.messages
                messages = bounded((*before, *conversation))
                if await self._memory.replace(*self._of, messages, known.revision, deadline):
                    return
                # Another turn of the same session was faster.
                known = await self._memory.read(*self._of, deadline)
            _log.warning("a turn was not remembered", error="the session changes too often")
        except CausewayError as error:
            _log.warning("a turn was not remembered", error=error.message)
