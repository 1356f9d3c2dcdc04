"""The detector ``file_type``: finds texts that are not in the required format (JSON, YAML or XML)."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from detection.chunking.chunkers import Chunking
from detection.detectors.factory import BuiltIn
from detection.detectors.params import BadParam, Params
from detection.detectors.port import Judge
from detection.domain import Detection, DetectionContext, DetectorKind

from guardrails.detectors.structure.formats import FORMATS, SCHEMA, validator
from guardrails.detectors.structure.process import CheckProcesses

_TYPE = "file_type"
_MAX_FORMAT_LENGTH = 20_000
_SECONDS = 30.0  # for one call: the wait for a free process, and the checks of all texts


class FileTypeParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    file_type: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=_MAX_FORMAT_LENGTH)]],
        msgspec.Meta(
            min_length=1,
            max_length=8,
            description="The formats in which a text must be valid: `json`, `yaml`, `xml`, `json-within` "
            "(every object in the text is valid JSON), `json-with-schema:` or `yaml-with-schema:` followed by a "
            "JSON Schema.",
        ),
    ]
    required_elements: Annotated[
        int, msgspec.Meta(ge=0, description="Minimum number of objects in a text, for `json-within`.")
    ] = 0


def file_type(processes: CheckProcesses) -> BuiltIn[FileTypeParams]:
    """Return the factory of the detector.

    Args:
        processes: The processes that parse texts.
    """

    def build(params: FileTypeParams) -> FileType:
        for index, text_format in enumerate(params.file_type):
            _check_format(text_format, f"file_type[{index}]")
        return FileType(params, processes)

    description = "Finds texts that are not in the required format: JSON, YAML or XML."
    return BuiltIn("file_type", description, FileTypeParams, build, streaming=False, about_answer=True)


class FileType(Judge):
    """Checks the format of whole texts. The span of a detection is the whole text."""

    kind = DetectorKind.CONTENTS
    chunking = Chunking.WHOLE
    seconds = _SECONDS
    judges_blank = True

    def __init__(self, params: FileTypeParams, processes: CheckProcesses) -> None:
        self._params = params
        self._processes = processes

    async def judge(self, windows: Sequence[str], context: DetectionContext) -> list[list[Detection]]:  # noqa: ARG002
        """See `Judge.judge`."""
        return [await self._check_text(text) for text in windows]

    async def _check_text(self, text: str) -> list[Detection]:
        params = self._params
        reasons = await self._processes.reasons(text, params.file_type, params.required_elements)
        return [
            Detection(
                _TYPE,
                f"invalid_{_format_name(text_format)}",
                text,
                0,
                len(text),
                extra=msgspec.json.encode({"metadata": {"reason": reason}}),
            )
            for text_format, reason in zip(params.file_type, reasons, strict=True)
            if reason
        ]


def _format_name(text_format: str) -> str:
    name, schema, _ = text_format.partition(SCHEMA)
    return f"{name}_schema" if schema else name.replace("-", "_")


def _check_format(text_format: str, path: str) -> None:
    if text_format in FORMATS:
        return
    name, _, schema = text_format.partition(SCHEMA)
    if name not in ("json", "yaml") or not schema:
        raise BadParam(path, f"not one of {', '.join(FORMATS)}, json{SCHEMA}…, yaml{SCHEMA}…")
    try:
        validator(schema)
    except ValueError as error:
        line = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise BadParam(path, f"the schema cannot be used: {line}") from error
