"""A model of an OpenAI-compatible server."""

from collections.abc import AsyncGenerator, Mapping

import msgspec
from pydantic import SecretStr

from generator.domain import Event, EventKind, OpenAIRequest, Prompt
from generator.openai.chunks import ChunkReader, ChunkRelay, checked_answer
from generator.openai.errors import bad_answer
from generator.openai.request import request_body
from generator.openai.server import ModelServer
from generator.openai.splice import set_member
from generator.ports import TokenCounter


class OpenAIModel:
    """A model on a server with chat completions.

    Args:
        name: The public name of the model.
        server: The server; other models may share it.
        remote_name: The name of the model on the server.
        tokens: Counts the tokens of the model.
        window: The context window in tokens; None: as the server reports.
        headers: Headers in addition to the server's headers.
        reasoning: See `request_body`.
    """

    def __init__(
        self,
        name: str,
        server: ModelServer,
        *,
        remote_name: str,
        tokens: TokenCounter,
        window: int | None = None,
        headers: Mapping[str, SecretStr] | None = None,
        reasoning: str = "",
    ) -> None:
        self.name = name
        self.owned_by = "openai-compatible"
        self.only_quotes = False
        self.tokens = tokens
        self._server = server
        self._remote_name = remote_name
        self._window = window
        self._headers = headers
        self._reasoning = reasoning

    async def generate(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """Yield the events of the answer; see `generator.ports.Model.generate`."""
        reader: ChunkReader | ChunkRelay
        plain, in_one_piece = False, True
        if isinstance(prompt, OpenAIRequest):
            body = set_member(prompt.body, "model", msgspec.json.encode(self._remote_name))
            reader = ChunkRelay()
        else:
            plain, in_one_piece = prompt.plain, prompt.in_one_piece
            body = request_body(prompt, self._remote_name, self._reasoning)
            reader = ChunkReader()
        async with self._server.chat(body, self._remote_name, self._headers, plain=plain) as reply:
            if not reply.is_stream:
                answer = await reply.read_all()
                if in_one_piece:
                    yield Event(EventKind.COMPLETION, raw_json=checked_answer(answer))
                else:  # some servers ignore the request for a stream
                    for event in reader.read(answer):
                        yield event
                return
            while payloads := await reply.payloads():
                for payload in payloads:
                    for event in reader.read(payload):
                        yield event
            if not (reply.done or reader.complete):
                raise bad_answer("ended its answer without a finish reason")

    async def context_window(self) -> int:
        """Return the configured context window, else the context window in the server's list of models."""
        return await self._server.window(self._remote_name) if self._window is None else self._window

    async def created(self) -> int:
        """Return the creation time in the server's list of models."""
        return await self._server.created(self._remote_name)

    async def ready(self) -> bool:
        """Return whether the server answers."""
        return await self._server.reachable()

    async def aclose(self) -> None:
        """Close the connections of the server, which other models may share."""
        await self._server.aclose()
