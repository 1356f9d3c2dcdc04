"""The child process that recognises text. It is a script that runs with a Python that has RapidOCR.

The process loads the models once and forks for each picture. Each fork has its own memory limit and exits after its
picture. The script imports no other module of this package. A request is a picture. A response is JSON.
"""

import gc
import importlib.util
import io
import json
import sys
from typing import Any

_MEMORY = 1024**3  # maximum bytes for a picture, in addition to the models
_CPU_SECONDS = 3600  # the time limit of the service is shorter by default
_DETECTION_SIDE = 960  # pixels of the longer side for line detection; recognition uses the full resolution
_MIN_CONFIDENCE = 0.85  # with less confidence, the picture may be rotated


class Damaged(Exception):
    """A picture cannot be decoded."""


def engine() -> Any:
    """Return RapidOCR with the models of its package, for one thread.

    The classifier of rotated lines is off: it takes a third of the time, and this module rotates whole pages
    instead. A batch size of one line halves the memory.
    """
    # The environment of the type checker does not have RapidOCR.
    from rapidocr import RapidOCR  # type: ignore[import-not-found]

    return RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.use_cls": False,
            "Det.limit_type": "max",
            "Det.limit_side_len": _DETECTION_SIDE,
            "Rec.rec_batch_num": 1,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def serve(program: Any) -> int:
    """Respond to requests until stdin ends; return the exit code.

    Args:
        program: The module `servicekit.child_program`.
    """
    out = program.response_stream()
    reader = engine()
    gc.collect()
    gc.freeze()  # otherwise, garbage collection in a fork would copy the models' memory

    def send(message: dict[str, Any]) -> None:
        out.write(program.framed(json.dumps(message).encode()))
        out.flush()

    def respond(picture: bytes) -> None:
        def limited() -> None:
            program.limit_resources(_CPU_SECONDS, program.used_memory() + _MEMORY)
            send(_response(reader, picture))

        if code := program.run_forked(limited):
            send({"failed": f"the fork that read the picture ended with exit code {code}"})

    exit_code: int = program.serve(out, respond)
    return exit_code


def _response(reader: Any, picture: bytes) -> dict[str, Any]:
    try:
        return {"lines": _best_lines(reader, picture)}
    except Exception as error:  # the outermost handler: the message goes to the worker's log
        return {"failed": f"{type(error).__name__}: {error}"[:500], "damaged": isinstance(error, Damaged)}


def _best_lines(reader: Any, content: bytes) -> list[Any]:
    """Return the lines of a picture in its best rotation, with positions in the rotated picture."""
    picture = decoded(content)
    lines = _lines(reader, picture)
    on_its_side = _is_on_its_side(lines)
    if not lines or (_confidence(lines) >= _MIN_CONFIDENCE and not on_its_side):
        return lines
    best = [] if on_its_side else lines
    for angle in (90, 270) if on_its_side else (180,):
        rotated_lines = _lines(reader, picture.rotate(angle, expand=True))
        if _weight(rotated_lines) > _weight(best):
            best = rotated_lines
        if _confidence(best) >= _MIN_CONFIDENCE:
            break
    return best


def decoded(content: bytes) -> Any:
    """Return the picture in these bytes.

    Raises:
        Damaged: The picture cannot be decoded.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as opened:
            return opened.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error


def _lines(reader: Any, picture: Any) -> list[Any]:
    import numpy as np

    found = reader(np.asarray(picture)[:, :, ::-1])
    if found.boxes is None:
        return []
    rows = zip(found.boxes.tolist(), found.txts, found.scores, strict=True)
    return [[text, float(score), box] for box, text, score in rows]


def _confidence(lines: list[Any]) -> float:
    """Return the mean confidence of the letters, 0 to 1."""
    letters = sum(len(text) for text, _, _ in lines)
    weighted: float = sum(len(text) * score for text, score, _ in lines)
    return float(weighted / letters) if letters else 0.0


def _weight(lines: list[Any]) -> float:
    """Return a score for the amount and the confidence of the text, to compare rotations of a picture."""
    return float(sum(len(text) * score**4 for text, score, _ in lines))


def _is_on_its_side(lines: list[Any]) -> bool:
    """Return whether most lines are taller than wide, which means that the page is rotated by 90 degrees."""
    return 2 * sum(_height(box) > _width(box) for _, _, box in lines) > len(lines)


def _width(box: list[tuple[float, float]]) -> float:
    return max(x for x, _ in box) - min(x for x, _ in box)


def _height(box: list[tuple[float, float]]) -> float:
    return max(y for _, y in box) - min(y for _, y in box)


def _program(file: str) -> Any:
    """Load `servicekit.child_program` from its file: this Python does not have the package."""
    spec = importlib.util.spec_from_file_location("child_program", file)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


if __name__ == "__main__":
    sys.exit(serve(_program(sys.argv[1])))
