"""What was said before, for clients that send the newest message alone and the name of their session."""

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
    """Adds to a turn what its session has said, and keeps the turn when it is answered.

    Args:
        memory: Keeps the sessions.
        usual: Sessions are remembered where the dialect's clients expect it and the profile says nothing.
    """

    def __init__(self, memory: Memory, *, usual: bool) -> None:
        self._memory = memory
        self._usual = usual

    async def recall(
        self, exchange: Exchange, principal: Principal, frontend: Frontend, deadline: Deadline
    ) -> "Remembering | None":
        """Put what was said before in front of a turn that has nothing but the newest message.

        Args:
            exchange: Its turn is changed.
            principal: Who asks. A session that another caller was given is unknown.
            frontend: The profile, likewise.
            deadline: When it must be over.

        Returns:
            What keeps the turn; None where nothing is to be kept.

        Raises:
            Unavailable: A session cannot be read. To answer without it would be a wrong answer.
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
        said = (*turn.history, Message("user", turn.question))
        if known.messages and not session.is_whole:
            system = tuple(each for each in turn.history if each.role == "system")
            others = tuple(each for each in turn.history if each.role != "system")
            exchange.turn = replace(turn, history=(*system, *known.messages, *others))
        return Remembering(self._memory, principal, frontend.name, session, known, said)


class Remembering:
    """Keeps one turn, once, when its answer is complete.

    Args:
        memory: Keeps the sessions.
        principal: Who asks.
        profile: Name of the front end.
        session: The turn's.
        known: What was kept before.
        said: The messages of the request.
    """

    def __init__(
        self,
        memory: Memory,
        principal: Principal,
        profile: str,
        session: Session,
        known: Remembered,
        said: tuple[Message, ...],
    ) -> None:
        self._memory = memory
        self._of = principal, profile, session.name
        self._session = session
        self._known = known
        self._said = said
        self._texts: list[str] = []
        self._stopped = False

    async def through(self, answer: AsyncGenerator[Batch, None]) -> AsyncGenerator[Batch, None]:
        """Yield the answer's batches. The turn is kept before the last one leaves, so that the client's next
        request finds it.
        """
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
            return  # what the detectors stopped is not kept
        said = (*self._said, Message("assistant", text))
        known: Remembered | None = self._known
        deadline = Deadline.after(_SECONDS)
        try:
            for _ in range(_TRIES):
                if known is None:
                    return  # it was deleted meanwhile
                before = () if self._session.is_whole else known.messages
                messages = bounded((*before, *said))
                if await self._memory.replace(*self._of, messages, known.revision, deadline):
                    return
                # Another turn of the same session was faster.
                known = await self._memory.read(*self._of, deadline)
            _log.warning("a turn was not remembered", error="the session changes all the time")
        except CausewayError as error:
            _log.warning("a turn was not remembered", error=error.message)
