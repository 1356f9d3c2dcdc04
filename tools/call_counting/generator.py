"""Counts the Python function calls of the generator, with a model server in memory.

The model server sends the next token after the generator has forwarded the previous one.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from causeway.generator.v1 import generator_pb2
from causeway_testing.generator import FakeCatalogue, FakeTokenCounter
from causeway_testing.loopback import LoopbackContext
from causeway_testing.model_answers import DONE, chunk, sse
from generator.gathering import Gathering
from generator.openai.model import OpenAIModel
from generator.openai.reply import Limits, Reply
from generator.servicer import GeneratorServicer
from servicekit.principal import LOCAL

from call_counting.profiler import Work, calls

_FEW, _MANY = 20, 120


async def counts() -> dict[str, float]:
    """Return the number of Python function calls for a streamed token, by the kind of request."""
    found: dict[str, float] = {}
    for kind in ("openai_request_json", "conversation"):
        few, many = [await calls(_generating(kind, tokens)) for tokens in (_FEW, _MANY)]
        found[f"generator, a token of {kind}"] = (many - few) / (_MANY - _FEW)
    return found


class _Content:
    """The part of aiohttp's stream that `Reply` uses."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._over = False

    def feed(self, piece: bytes) -> None:
        self._pieces.put_nowait(piece)

    async def readany(self) -> bytes:
        piece = await self._pieces.get()
        self._over = not piece
        return piece

    def is_eof(self) -> bool:
        return self._over


class _Response:
    connection = None
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self) -> None:
        self.content = _Content()

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


class _ModelServer:
    def __init__(self) -> None:
        self._response = _Response()
        self._gathering = Gathering(0.05)

    def opened(self) -> _Content:
        """Return the body of the next response; the caller fills it."""
        self._response = _Response()
        return self._response.content

    @contextlib.asynccontextmanager
    async def chat(self, *_: object, **__: object) -> AsyncIterator[Reply]:
        reply = Reply(self._response, Limits(), 60.0, self._gathering)  # type: ignore[arg-type]  # has the members that it uses
        try:
            yield reply
        finally:
            await reply.aclose()


def _generating(kind: str, tokens: int) -> Work:
    server = _ModelServer()
    model = OpenAIModel("fake", server, remote_name="fake", tokens=FakeTokenCounter())  # type: ignore[arg-type]  # has the members that it uses
    servicer = GeneratorServicer(FakeCatalogue(model))
    request = generator_pb2.GenerateRequest(principal=LOCAL.to_proto())
    if kind == "conversation":
        request.conversation.messages.add(role="user", text="When?")
    else:
        request.openai_request_json = b'{"messages":[{"role":"user","content":"When?"}],"stream":true}'
    first = sse(chunk({"role": "assistant", "content": "word "}))
    token = sse(chunk({"content": "word "}))
    last = sse(chunk({}, "stop")) + DONE

    async def work() -> None:
        content = server.opened()
        pieces = iter([*[token] * (tokens - 1), last, b""])
        content.feed(first)
        messages = 0
        async for _ in servicer.Generate(request, LoopbackContext()):  # type: ignore[arg-type]  # as above
            messages += 1
            content.feed(next(pieces, b""))
        assert messages >= tokens, f"{kind}: {tokens} tokens arrived in {messages} messages"

    return work
