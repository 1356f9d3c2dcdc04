"""The detector ``pii``: finds names of people, places and groups, which have no pattern."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from detection.chunking.chunkers import Chunking
from detection.detectors.factory import BuiltIn
from detection.detectors.params import Params
from detection.detectors.port import DetectorFailed, Judge
from detection.domain import Detection, DetectionContext, DetectorKind, Health
from servicekit import child_program

from guardrails.detectors.child_processes import ChildProcesses

Entity = Literal["PERSON", "LOCATION", "NRP"]
_CHILD = Path(__file__).with_name("child.py")
_MEMORY = 512 * 1024**2  # bytes for a request, in addition to the model
# The maximum characters of several windows in one request; a longer window has its own request. The model takes at
# most a second for this number.
_MAX_BATCH_LENGTH = 20_000


class PiiParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    entities: Annotated[
        list[Entity],
        msgspec.Meta(
            min_length=1,
            description="The entities to find: `PERSON`, `LOCATION`, `NRP` (nationalities, religions, parties).",
        ),
    ] = msgspec.field(default_factory=lambda: ["PERSON", "LOCATION"])


class _Response(msgspec.Struct):
    found: list[list[tuple[str, int, int, float]]] | None = None
    failed: str = ""


def pii_processes(python: Path, seconds: float, processes: int) -> ChildProcesses:
    """Return the processes that find names.

    Args:
        python: The Python of an environment with Presidio and the model.
        seconds: The time limit of a request.
        processes: The maximum number of concurrent requests. Each process takes about 170 MB, and a request of the
            maximum length about 80 MB more.
    """
    # One thread per process is enough, because the processes run in parallel.
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = (str(python), "-I", str(_CHILD), child_program.__file__)
    return ChildProcesses(command, seconds, processes, environment)


def pii(processes: ChildProcesses, seconds: float) -> BuiltIn[PiiParams]:
    """Return the factory of the detector.

    Args:
        processes: The processes that analyse texts.
        seconds: The time limit of a request.
    """

    async def probe() -> Health:
        try:
            await _analyse(processes, ["Anna"], ["PERSON"], seconds)
        except DetectorFailed as error:
            return Health(healthy=False, reason=str(error))
        return Health(healthy=True)

    return BuiltIn(
        "pii",
        "Finds names of people and places in English texts, with Presidio.",
        PiiParams,
        lambda params: Pii(params, processes, seconds),
        probe=probe,
    )


class Pii(Judge):
    """Finds names in sentences."""

    kind = DetectorKind.CONTENTS
    chunking = Chunking.SENTENCE

    def __init__(self, params: PiiParams, processes: ChildProcesses, seconds: float) -> None:
        self._params = params
        self._processes = processes
        self._request_seconds = seconds
        self.seconds = 3 * seconds  # includes the wait for a process, and several requests

    async def judge(self, windows: Sequence[str], context: DetectionContext) -> list[list[Detection]]:  # noqa: ARG002
        """See `Judge.judge`."""
        found: list[list[Detection]] = []
        for batch in _batches(windows):
            responses = await _analyse(self._processes, batch, self._params.entities, self._request_seconds)
            found += [
                [
                    Detection("pii", name.lower(), text[start:end], start, end, score)
                    for name, start, end, score in response
                ]
                for text, response in zip(batch, responses, strict=True)
            ]
        return found


async def _analyse(
    processes: ChildProcesses, texts: Sequence[str], entities: Sequence[str], seconds: float
) -> list[list[tuple[str, int, int, float]]]:
    request: dict[str, Any] = {
        "texts": texts,
        "entities": entities,
        "seconds": int(seconds) + 1,
        "memory": _MEMORY,
    }
    response = msgspec.json.decode(await processes.call(msgspec.json.encode(request)), type=_Response)
    if response.found is None:
        raise DetectorFailed(response.failed)
    return response.found


def _batches(windows: Sequence[str]) -> list[list[str]]:
    batches: list[list[str]] = []
    size = _MAX_BATCH_LENGTH
    for window in windows:
        size += len(window)
        if size > _MAX_BATCH_LENGTH:
            batches.append([])
            size = len(window)
        batches[-1].append(window)
    return batches
