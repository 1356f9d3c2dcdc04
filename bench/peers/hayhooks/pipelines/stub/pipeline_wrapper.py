# mypy: ignore-errors
# The file runs in the environment of hayhooks, which has other packages.
"""A Haystack pipeline of one chat generator, for hayhooks' OpenAI routes."""

import os
from collections.abc import AsyncGenerator

from hayhooks import BasePipelineWrapper, async_streaming_generator
from haystack import Pipeline
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret


class PipelineWrapper(BasePipelineWrapper):
    """The class that hayhooks loads from this file."""

    def setup(self) -> None:
        """Create the pipeline."""
        self.pipeline = Pipeline()
        generator = OpenAIChatGenerator(
            api_key=Secret.from_token("unused"), model="stub", api_base_url=os.environ["BENCH_SERVER"]
        )
        self.pipeline.add_component("llm", generator)

    async def run_chat_completion_async(
        self,
        model: str,  # noqa: ARG002  # hayhooks' signature
        messages: list[dict],
        body: dict,
    ) -> str | AsyncGenerator:
        """Return the text of a chat completion, or a generator of its pieces."""
        arguments = {"llm": {"messages": [ChatMessage.from_openai_dict_format(message) for message in messages]}}
        if body.get("stream"):
            return async_streaming_generator(pipeline=self.pipeline, pipeline_run_args=arguments)
        result = await self.pipeline.run_async(arguments)
        return result["llm"]["replies"][0].text
