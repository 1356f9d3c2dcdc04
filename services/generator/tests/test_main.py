"""The process of the generator."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from causeway.generator.v1 import generator_pb2 as pb
from causeway.generator.v1 import generator_pb2_grpc
from causeway_testing.model_answers import stream
from causeway_testing.model_server import ModelServer as Stub
from causeway_testing.servers import free_ports
from generator.main import serve
from generator.settings import Settings
from servicekit import rpc
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, InvalidRequest
from servicekit.principal import LOCAL

pytestmark = pytest.mark.slow  # each test starts processes

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["GeneratorService"]


class Generator:
    """A running process and a stub to it."""

    def __init__(self, process: asyncio.subprocess.Process, stub: Any) -> None:
        self.process = process
        self.stub = stub

    async def models(self) -> list[str]:
        request = pb.ListModelsRequest(principal=LOCAL.to_proto())
        answer = await rpc.unary(self.stub.ListModels, request, Deadline.after(5))
        return [model.name for model in answer.models]


async def start(environment: dict[str, str], port: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "generator",
        env={**os.environ, "CAUSEWAY_GENERATOR_PORT": str(port), **environment},
        stderr=asyncio.subprocess.PIPE,
    )


@contextlib.asynccontextmanager
async def running(**environment: str) -> AsyncIterator[Generator]:
    (port,) = free_ports(1)
    process = await start(environment, port)
    channel = open_channel(f"127.0.0.1:{port}", [DESCRIPTOR])
    generator = Generator(process, generator_pb2_grpc.GeneratorServiceStub(channel))
    try:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(CausewayError):
                    await generator.models()
                    break
                assert process.returncode is None
                await asyncio.sleep(0.05)
        yield generator
    finally:
        await channel.close()
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_without_settings_the_process_serves_the_extractive_model(
    conversation: Callable[..., pb.GenerateRequest],
) -> None:
    """Without settings, the process serves the extractive model and ends with exit code 0."""
    async with running() as generator:
        assert await generator.models() == ["extractive"]
        request = conversation(
            "How heavy may a pallet be?", sources=[pb.Source(name="a.md", text="A pallet may weigh up to 900 kg.")]
        )
        call = rpc.server_stream(generator.stub.Generate, request, Deadline.after(5))
        text = "".join([event.text async for batch in call for event in batch.events if event.kind == 2])
        assert text == "A pallet may weigh up to 900 kg. [a.md]"
        generator.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(generator.process.wait(), 60) == 0


async def test_a_running_stream_is_finished_after_sigterm(
    stub: Stub, conversation: Callable[..., pb.GenerateRequest]
) -> None:
    """The default model is listed first. After SIGTERM a running answer completes, and the exit code is 0."""
    stub.script(stream(["a"] * 50, pace=0.02))
    environment = {"CAUSEWAY_OPENAI_BASE_URL": stub.url, "CAUSEWAY_OPENAI_MODELS": "big=stub,small=stub"}
    async with running(**environment, CAUSEWAY_MODEL="small") as generator:
        assert await generator.models() == ["small", "extractive", "big"]
        call = generator.stub.Generate(conversation(model="big"))
        texts = [event.text for event in (await call.read()).events]
        generator.process.send_signal(signal.SIGTERM)
        while batch := await call.read():
            texts += [event.text for event in batch.events if event.kind == 2]
        assert "".join(texts) == "a" * 50
        assert await asyncio.wait_for(generator.process.wait(), 60) == 0


def models_file(model: str, *stubs: Stub) -> str:
    servers = "\n".join(
        f"  s{at}: {{kind: openai, url: '{stub.url}', api_key: {{env: KEY}}}}" for at, stub in enumerate(stubs)
    )
    places = ", ".join(f"{{server: s{at}, model: stub, tier: {at + 1}}}" for at in range(len(stubs)))
    return f"servers:\n{servers}\nmodels:\n- name: {model}\n  deployments: [{places}]\n"


async def test_a_changed_models_file_takes_effect(
    stub: Stub, conversation: Callable[..., pb.GenerateRequest], tmp_path: Path
) -> None:
    """The models of a file are served with fallback. A changed file takes effect within seconds. An invalid file is
    logged and ignored.
    """
    path = tmp_path / "models.yaml"
    async with contextlib.AsyncExitStack() as stack:
        second = await stack.enter_async_context(Stub.started(tokens=2))
        path.write_text(models_file("one", stub, second))
        running_one = running(CAUSEWAY_MODELS_FILE=str(path), KEY="s3cret")
        generator = await stack.enter_async_context(running_one)

        async def text(model: str) -> str:
            call = rpc.server_stream(generator.stub.Generate, conversation(model=model), Deadline.after(5))
            return "".join([event.text async for batch in call for event in batch.events if event.kind == 2])

        assert await text("one") == "word0 word1 word2 word3 "
        await stub.stop()
        assert await text("one") == "word0 word1 "
        path.write_text(models_file("two", second))
        async with asyncio.timeout(60):
            while await generator.models() != ["two"]:  # noqa: ASYNC110  # another process' file watch
                await asyncio.sleep(0.05)
        assert await text("two") == "word0 word1 "
        path.write_text(models_file("three", second).replace("tier: 1", "teir: 1"))
        logged = b""
        assert generator.process.stderr is not None
        while b"models.yaml, line 5, models[0].deployments[0].teir: there is no such key" not in logged:
            logged += await asyncio.wait_for(generator.process.stderr.readline(), 60)
        assert await generator.models() == ["two"]
        generator.process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(generator.process.communicate(), 60)
    assert b"s3cret" not in logged + errors


async def test_an_invalid_models_file_prevents_the_start(tmp_path: Path) -> None:
    """An invalid models file prevents the start. The error names the file, the line and the key."""
    path = tmp_path / "models.yaml"
    path.write_text("models: 1")
    process = await start({"CAUSEWAY_MODELS_FILE": str(path)}, free_ports(1)[0])
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert f"CAUSEWAY_MODELS_FILE: {path}, line 1, servers: this is missing" in errors.decode()
    assert process.returncode != 0


async def test_a_models_file_excludes_the_variables_of_one_server(tmp_path: Path) -> None:
    """With a models file, the variables of the OpenAI-compatible server are refused, and a missing file, too."""
    path = tmp_path / "models.yaml"
    with pytest.raises(InvalidRequest, match="cannot be combined with CAUSEWAY_OPENAI_BASE_URL"):
        await serve(Settings(models_file=path, openai_base_url="http://a"), asyncio.Event())
    with pytest.raises(InvalidRequest, match="No such file or directory"):
        await serve(Settings(models_file=path), asyncio.Event())
