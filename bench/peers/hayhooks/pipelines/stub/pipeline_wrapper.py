# mypy: ignore-errors
# It runs in an environment of its own, whose packages this one has not.
"""A Haystack pipeline of one chat generator, asked through hayhooks' OpenAI routes."""

import os
from collections.abc import AsyncGenerator

from hayhooks import BasePipelineWrapper, async_streaming_generator
from haystack import Pipeline
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret


class PipelineWrapper(BasePipelineWrapper):
    """What hayhooks loads from this file."""

    def setup(self) -> None:
        """Makes the pipeline."""
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
        """Answers a chat completion."""
        said = {"llm": {"messages": [ChatMessage.from_openai_dict_format(message) for message in messages]}}
        if body.get("stream"):
            return async_streaming_generator(pipeline=self.pipeline, pipeline_run_args=said)
        result = await self.pipeline.run_async(said)
        return result["llm"]["replies"][0].text
