"""The contracts in other languages. Local plugins generate code that compiles, and a program in Go uses this
code.
"""

import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from causeway.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from causeway_testing.servers import eventually
from guardrails.remote.chunkers import Chunkers
from guardrails.remote.config import ChunkerConfig
from servicekit.server import GrpcServer

HERE = Path(__file__).parent
PROTO = HERE.parents[1] / "proto"
RETRIEVER = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
GO_PLUGINS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2",
)
SECONDS = 600


class Retriever(retriever_pb2_grpc.RetrieverServiceServicer):
    """A retriever that returns as many passages as a request asks for, and records the requests."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def Retrieve(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        self.requests.append(request)
        passages = [retriever_pb2.Passage(text=f"passage {number}") for number in range(request.top)]
        return retriever_pb2.RetrieveResponse(passages=passages)


def run(*command: str | Path, cwd: Path = PROTO, path: Path | None = None, **environment: str) -> None:
    """Run a program until it ends, and check that it succeeds. Its output is the message of a failure."""
    search = f"{path}{os.pathsep}{os.environ['PATH']}" if path else os.environ["PATH"]
    completed = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "PATH": search, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


def generate(language: str, output: Path, plugins: Path, **options: Any) -> None:
    """Generate the code of one language with its plugins in proto/buf.gen.yaml.

    Args:
        language: The output directory of the language in proto/buf.gen.yaml.
        output: The directory below which the code is written.
        plugins: The directory of the plugin programs.
        options: Additional members of the plugins that are part of protoc.
    """
    template = yaml.safe_load((PROTO / "buf.gen.yaml").read_text())
    chosen = [each for each in template["plugins"] if each["out"] == language]
    assert chosen
    template["plugins"] = [each | (options if "protoc_builtin" in each else {}) for each in chosen]
    buf = Path(sys.executable).with_name("buf")
    run(buf, "generate", "--template", json.dumps(template), "--output", output, path=plugins)


def require(*programs: str) -> None:
    """Skip the test if programs are not installed. The message names them."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"the contracts are not tested in this language: {', '.join(missing)} is not installed")


@pytest.mark.timeout(SECONDS)
async def test_a_go_program_uses_the_contracts(tmp_path: Path) -> None:
    """A Go program that uses only the generated code calls the retriever, and is a chunker of the guardrails
    service.
    """
    require("go")
    plugins = tmp_path / "plugins"
    for plugin in GO_PLUGINS:
        await asyncio.to_thread(run, "go", "install", plugin, GOBIN=str(plugins), GOFLAGS="-mod=mod")
    generate("go", tmp_path / "generated", plugins)
    program = shutil.copytree(HERE / "go", tmp_path / "program")
    contracts = shutil.copytree(tmp_path / "generated" / "go", program / "contracts")
    (contracts / "go.mod").write_text("module causeway.internal/contracts\n\ngo 1.25.0\n")
    await asyncio.to_thread(run, "go", "build", "-o", "example", ".", cwd=program, GOFLAGS="-mod=mod")

    retriever = Retriever()  # type: ignore[abstract]  # the other methods are UNIMPLEMENTED
    add = retriever_pb2_grpc.add_RetrieverServiceServicer_to_server
    server = GrpcServer("127.0.0.1:0", [(RETRIEVER, lambda it: add(retriever, it))])
    await server.start()
    process = await asyncio.create_subprocess_exec(
        program / "example",
        f"127.0.0.1:{server.port}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        printed = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
        assert printed["passages"] == ["passage 0", "passage 1"]
        [request] = retriever.requests
        assert (request.principal.tenant, list(request.indexes), request.top) == ("default", ["handbook"], 2)
        await _check_chunker(f"127.0.0.1:{printed['port']}")
    finally:
        process.kill()
        await process.wait()
        await server.stop(0)


async def _check_chunker(target: str) -> None:
    """Check that the chunker at an address ends a chunk after each line."""
    chunkers, ends = Chunkers(), []
    chunker = chunkers.chunker(ChunkerConfig("lines", target), lambda: None)
    ends += chunker.feed("high wäter\nlow", last=False)
    ends += chunker.feed(" water", last=True)

    def has_both_ends() -> bool:
        ends.extend(chunker.feed("", last=False))
        return len(ends) == 2

    await eventually(has_both_ends)
    assert ends == [11, 20]
    chunker.close()
    await chunkers.aclose()


@pytest.mark.timeout(SECONDS)
def test_the_java_classes_compile(tmp_path: Path) -> None:
    """The Java classes are in the packages that their options name, and compile with the library of gRPC."""
    require("mvn", "javac")
    machine = {"x86_64": "x86_64", "aarch64": "aarch_64"}[platform.machine()]
    maven = ("mvn", "--quiet", "--batch-mode", f"-Dcontracts={tmp_path / 'java'}")
    run(*maven, "dependency:copy@programs", f"-Dplatform=linux-{machine}", cwd=HERE / "java")
    programs = tmp_path / "java" / "programs"
    for file in list(programs.glob("*.exe")):
        file.chmod(0o755)
        file.rename(programs / file.name.removesuffix(f"-linux-{machine}.exe"))
    generate("java", tmp_path, programs, protoc_path=str(programs / "protoc"))
    run(*maven, "compile", cwd=HERE / "java")
    for name in ("retriever/v1/RetrieverServiceGrpc", "guardrails/v1/ChunkRequest", "identity/v1/Principal"):
        assert (tmp_path / "java" / "target" / "classes" / "internal" / "causeway" / f"{name}.class").exists()
