"""The process that reads pictures: run as a script by a Python that has RapidOCR, and nothing of ours.

It loads the models once and answers one question at a time. A question is a picture, an answer is JSON; both have
four bytes of length in front.
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
_MEMORY = 1024**3  # bytes that reading a picture may take beside the models
_DETECTED = (
    960  # pixels of the longer side when lines are looked for; what they say is read from the picture itself
)
_SURE = 0.85  # with less confidence the picture may be turned


def engine() -> Any:
    """Return RapidOCR with the models of its wheel, for one thread.

    The classifier of turned lines is left out: it costs a third of the time, and whole pages are turned here. One
    line at a time is recognised, which takes half of the memory.
    """
    # The type checker's environment does not have it.
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
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not come between frames
    reader = engine()
    _limit()
    _send(out, {})
    while len(prefix := sys.stdin.buffer.read(_PREFIX)) == _PREFIX:
        picture = sys.stdin.buffer.read(int.from_bytes(prefix))
        try:
            _send(out, {"lines": _best(reader, picture)})
        except Exception as error:  # the boundary: the next picture may be read
            _send(out, {"failed": f"{type(error).__name__}: {error}"[:500]})
    return 0


def _best(reader: Any, content: bytes) -> list[Any]:
    """The lines of a picture, turned as its text is best read; places are those of the turned picture."""
    from PIL import Image

    with Image.open(io.BytesIO(content)) as opened:
        picture = opened.convert("RGB")
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
    """How much is read, and how surely: a line that is turned says little, with little confidence."""
    return float(sum(len(text) * score**4 for text, score, _ in lines))


def _is_on_its_side(lines: list[Any]) -> bool:
    """Whether most lines are taller than wide, as those of a page on its side."""
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
    """Bound what the process may use beside what the models take."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":  # elsewhere the limit is not kept, or cannot be set
        used = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))


def _die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, however that dies (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the worker's to handle
    sys.exit(serve())
