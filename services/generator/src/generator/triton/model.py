"""A model of a Triton Inference Server."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator

from servicekit.errors import Unavailable

from generator import openai_emulation
from generator.domain import Conversation, Event, EventKind, OpenAIRequest, Prompt, Usage
from generator.ports import TokenCounter
from generator.tokenizers.templates import load_template, text_messages
from generator.triton.answer import Answer
from generator.triton.config import TritonConfig
from generator.triton.parameters import parse_sampling
from generator.triton.server import TritonServer


class TritonModel:
    """A model on a Triton server. It connects on the first call, and opens one gRPC stream for each answer.

    The server accepts only one text, so a chat template renders the messages as one text. The model refuses
    pictures, tools and several choices with an error that names the parameter or the part of the message. A request
    of the OpenAI API gets an answer in the format of that API.

    Args:
        name: The public name.
        config: The configuration of the deployment.
        tokens: Counts tokens as the model does.

    Raises:
        ValueError: The chat template cannot be read.
    """

    def __init__(self, name: str, config: TritonConfig, *, tokens: TokenCounter) -> None:
        self.name = name
        self.owned_by = "triton"
        self.only_quotes = False
        self.tokens = tokens
        self._config = config
        self._template = load_template(config.chat_template)
        self._server = TritonServer(config)

    async def generate(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """Yield the answer's events.

        In a conversation, there is at most one TEXT event per server response, and one for the rest of the text.
        See `generator.ports.Model.generate`.
        """
        if isinstance(prompt, OpenAIRequest):
            request = openai_emulation.parse(prompt.body)
            writer = openai_emulation.Writer(self.name, f"chatcmpl-{uuid.uuid4().hex}", int(time.time()))
            events = writer.answer(request, self._answer(request.conversation))
        else:
            events = self._answer(prompt)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    async def _answer(self, prompt: Conversation) -> AsyncGenerator[Event, None]:
        sampling_parameters = parse_sampling(prompt.parameters_json, self._config.answer_tokens)
        [first, *_] = messages = text_messages(prompt.messages)
        text = first["content"] if prompt.plain else self._template.prompt(messages)
        model = await self._server.describe()
        answer = Answer(sampling_parameters)
        responses = self._server.stream(model.tensors(text, sampling_parameters))
        async with contextlib.aclosing(responses):
            async for outputs in responses:
                piece = answer.add_response(outputs)
                if answer.responses == 1:
                    yield openai_emulation.start(self.name)
                if piece:
                    yield Event(EventKind.TEXT, text=piece)
                if answer.stopped:
                    break
        if not answer.responses:
            raise Unavailable("The model server ended the stream without an answer.")
        if rest := answer.close():
            yield Event(EventKind.TEXT, text=rest)
        usage = await self._usage(prompt, answer)
        yield Event(EventKind.FINISH, text=answer.reason(usage.completion_tokens))
        yield Event(EventKind.USAGE, usage=usage)

    async def _usage(self, prompt: Conversation, answer: Answer) -> Usage:
        """Return the server's token counts; count the tokens here if the server does not report them."""
        if answer.prompt_tokens is not None and answer.answer_tokens is not None:
            return Usage(answer.prompt_tokens, answer.answer_tokens, exact=True)
        prompt_tokens, answer_tokens = await asyncio.to_thread(
            lambda: (self._count(prompt), self.tokens.count(answer.text))
        )
        return Usage(
            prompt_tokens if answer.prompt_tokens is None else answer.prompt_tokens,
            answer_tokens if answer.answer_tokens is None else answer.answer_tokens,
            exact=False,
        )

    def _count(self, prompt: Conversation) -> int:
        if prompt.plain:
            return self.tokens.count(prompt.messages[0].text)
        return self.tokens.count_messages(prompt.messages)

    async def context_window(self) -> int:
        """Return the configured context window, else the one in the server's model configuration; 0 if unknown."""
        if self._config.window is not None:
            return self._config.window
        return await self._server.window()

    async def created(self) -> int:
        """Return 0, because Triton does not report when a model was created."""
        return 0

    async def ready(self) -> bool:
        """Return whether the server reports the model as ready."""
        return await self._server.ready()

    async def aclose(self) -> None:
        """Close the connection to the server."""
        await self._server.aclose()
