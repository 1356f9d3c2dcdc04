"""The child process that recognises text. It runs as a script, on a Python that has RapidOCR.

The process loads the models once and answers one question at a time. It imports no other module of this package. A
question is a picture, an answer is JSON; both follow four bytes of length.
"""

import ctypes
import io
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, BinaryIO

_PREFIX = 4
_PR_SET_PDEATHSIG = 1
_MEMORY = 1024**3  # bytes for a picture, in addition to the models
_DETECTED = 960  # pixels of the longer side for the detection of lines; their text is read in full resolution
_SURE = 0.85  # with less confidence, the picture may be rotated


class Damaged(Exception):
    """A picture cannot be decoded."""


def engine() -> Any:
    """Return RapidOCR with the models of its package, for one thread.

    The classifier of rotated lines is not used: it takes a third of the time, and this module rotates whole pages.
    Recognising one line at a time takes half of the memory.
    """
    # The environment of the type checker does not have RapidOCR.
    from rapidocr import RapidOCR  # type: ignore[import-not-found]

    return RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.use_cls": False,
            "Det.limit_type": "max",
            "Det.limit_side_len": _DETECTED,
            "Rec.rec_batch_num": 1,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def serve() -> int:
    """Answer questions until stdin ends; return the exit code."""
    _die_with_parent()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with Path(os.devnull).open("wb") as nowhere:  # output of libraries must not mix with frames
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    reader = engine()
    _limit()
    _send(out, {})
    while len(prefix := sys.stdin.buffer.read(_PREFIX)) == _PREFIX:
        picture = sys.stdin.buffer.read(int.from_bytes(prefix))
        try:
            _send(out, {"lines": _best(reader, picture)})
        except Exception as error:  # the outermost handler: the next picture may be readable
            reason = f"{type(error).__name__}: {error}"[:500]
            _send(out, {"failed": reason, "damaged": isinstance(error, Damaged)})
    return 0


def _best(reader: Any, content: bytes) -> list[Any]:
    """Return the lines of a picture in its best rotation; positions are those in the rotated picture."""
    picture = decoded(content)
    lines = _lines(reader, picture)
    on_its_side = _is_on_its_side(lines)
    if not lines or (_confidence(lines) >= _SURE and not on_its_side):
        return lines
    best = [] if on_its_side else lines
    for turn in (90, 270) if on_its_side else (180,):
        turned = _lines(reader, picture.rotate(turn, expand=True))
        if _weight(turned) > _weight(best):
            best = turned
        if _confidence(best) >= _SURE:
            break
    return best


def decoded(content: bytes) -> Any:
    """Return the picture in these bytes.

    Raises:
        Damaged: It cannot be decoded.
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
    letters = sum(len(text) for text, _, _ in lines)
    sure: float = sum(len(text) * score for text, score, _ in lines)
    return float(sure / letters) if letters else 0.0


def _weight(lines: list[Any]) -> float:
    """Return a weight by amount and confidence of the text: rotated lines have little text of low confidence."""
    return float(sum(len(text) * score**4 for text, score, _ in lines))


def _is_on_its_side(lines: list[Any]) -> bool:
    """Return whether most lines are taller than wide, which means that the page is rotated by 90 degrees."""
    return 2 * sum(_height(box) > _width(box) for _, _, box in lines) > len(lines)


def _width(box: list[tuple[float, float]]) -> float:
    return max(x for x, _ in box) - min(x for x, _ in box)


def _height(box: list[tuple[float, float]]) -> float:
    return max(y for _, y in box) - min(y for _, y in box)


def _send(out: BinaryIO, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    out.write(len(body).to_bytes(_PREFIX) + body)
    out.flush()


def _limit() -> None:
    """Limit the resources of the process, in addition to those of the models."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":  # other systems ignore or refuse the limit
        used = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))


def _die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies for any reason (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles Ctrl-C of a terminal
    sys.exit(serve())
