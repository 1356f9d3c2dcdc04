"""The policy file for output guardrails in the format of KAITO's RAG engine.

Each scanner corresponds to one or more detectors of this service. The parser refuses an option that the detectors
do not support, because the policy would otherwise protect less than it states. The error names the key. The parser
ignores an option only if the policy becomes stricter without it, for example ``repair`` and ``truncate``.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from detection.domain import Action, DetectorSpec
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from servicekit.errors import InvalidRequest
from servicekit.reloadable import Reloadable
from servicekit.yaml_file import Document, setting_errors

DEFAULT_BLOCK_MESSAGE = "The model output was blocked by output guardrails."
_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")
# The RAG engine accepts these values in upper case, too.
_ANY_CASE = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


@dataclass(frozen=True, slots=True)
class Policy:
    """The detectors for each answer, and the message that replaces a blocked answer."""

    output: tuple[DetectorSpec, ...]
    block_message: str


NO_POLICY = Policy((), "")


DetectorRequests = list[tuple[str, dict[str, Any]]]
"""The IDs of detectors, each with the detector's parameters."""


class Scanner(BaseModel):
    """The keys that all scanners have.

    A key may be in camel, kebab or snake case: ``redactMode``, ``redact-mode`` or ``redact_mode``.
    """

    model_config = ConfigDict(extra="forbid")

    type: str
    action: Literal["block", "redact"] | None = Field(
        None, validation_alias=AliasChoices("action", "action_on_hit")
    )

    @model_validator(mode="before")
    @classmethod
    def _normalised(cls, value: Any) -> Any:
        return {_snake_case(key): option for key, option in value.items()} if isinstance(value, dict) else value

    @abstractmethod
    def detector_requests(self) -> DetectorRequests:
        """Return the detectors that correspond to the scanner."""


class RegexScanner(Scanner):
    """``regex``: a match is a finding. ``is_blocked: false`` is not supported.

    The values of ``match_type`` are those of LLM Guard, which the RAG engine uses. With ``search`` and ``all``,
    each match is a finding, although ``search`` of LLM Guard finds only the first match of a pattern. With
    ``fullmatch``, a pattern must match the whole text.
    """

    patterns: list[str] = Field(min_length=1)
    is_blocked: Literal[True] = True
    match_type: Annotated[Literal["search", "all", "fullmatch"], _ANY_CASE] = "search"

    def detector_requests(self) -> DetectorRequests:
        """See `Scanner.detector_requests`."""
        is_fullmatch = self.match_type == "fullmatch"
        patterns = [rf"\A(?:{pattern})\z" if is_fullmatch else pattern for pattern in self.patterns]
        return [("regex", {"regex": patterns})]


class BanSubstringsScanner(Scanner):
    """``ban_substrings``: each substring is a finding. ``contains_all`` is not supported."""

    substrings: list[str] = Field(min_length=1)
    match_type: Annotated[Literal["word", "str"], _ANY_CASE] = "word"
    case_sensitive: bool = False
    contains_all: Literal[False] = False

    def detector_requests(self) -> DetectorRequests:
        """See `Scanner.detector_requests`."""
        options = {"substrings", "match_type", "case_sensitive"}
        return [("ban_substrings", self.model_dump(include=options))]


class SecretsScanner(Scanner):
    """``secrets``: a secret is a finding.

    Every ``redact_mode`` replaces the whole secret, even ``partial`` and ``hash``.
    """

    redact_mode: Annotated[Literal["all", "partial", "hash"], _ANY_CASE] = "all"

    def detector_requests(self) -> DetectorRequests:
        """See `Scanner.detector_requests`."""
        return [("secrets", {})]


_SENSITIVE = {"email": "email", "phone": "phone-number", "credit_card": "credit-card", "ip_address": "ipv4"}


class SensitiveScanner(Scanner):
    """``sensitive``: personal data is a finding. A placeholder replaces it, for example ``<EMAIL>``."""

    detectors: list[Annotated[Literal["email", "phone", "credit_card", "ip_address"], _ANY_CASE]] = Field(
        ["email", "phone", "credit_card", "ip_address"], min_length=1
    )

    def detector_requests(self) -> DetectorRequests:
        """See `Scanner.detector_requests`."""
        return [
            ("regex", {"regex": [_SENSITIVE[name]], "replacement": f"<{name.upper()}>"})
            for name in dict.fromkeys(self.detectors)
        ]


class InvisibleTextScanner(Scanner):
    """``invisible_text``: each run of invisible characters is a finding. The scanner has no options."""

    def detector_requests(self) -> DetectorRequests:
        """See `Scanner.detector_requests`."""
        return [("invisible_text", {})]


class JsonScanner(Scanner):
    """``json``: a text with invalid JSON or too few JSON objects is a finding. ``repair`` has no effect."""

    required_elements: int = Field(0, ge=0)
    repair: bool = True

    def detector_requests(self) -> DetectorRequests:
        """See `Scanner.detector_requests`."""
        return [("file_type", {"file_type": ["json-within"], "required_elements": self.required_elements})]


class TokenLimitScanner(Scanner):
    """``token_limit``: a text with too many tokens of an encoding is a finding."""

    limit: int = Field(4096, ge=1)
    encoding_name: Literal["cl100k_base", "o200k_base"] = "cl100k_base"

    def detector_requests(self) -> DetectorRequests:
        """See `Scanner.detector_requests`."""
        return [("token_limit", {"limit": self.limit, "encoding": self.encoding_name})]


class ReadingTimeScanner(Scanner):
    """``reading_time``: a text that takes more than ``max_time`` minutes to read is a finding.

    The text is blocked, because there is no span to redact. ``truncate`` has no effect.
    """

    max_time: float = Field(gt=0)
    truncate: bool = False

    def detector_requests(self) -> DetectorRequests:
        """See `Scanner.detector_requests`."""
        return [("reading_time", {"max_time": self.max_time})]


def _snake_case(key: Any) -> Any:
    return _WORD_BREAK.sub("_", key).replace("__", "_").lower() if isinstance(key, str) else key


def _type(value: Any) -> str:
    scanner_type = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return str(_snake_case(scanner_type)).strip()


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    action: Literal["block", "redact"] = "redact"
    block_message: str = Field(DEFAULT_BLOCK_MESSAGE, alias="blockMessage", min_length=1)
    scanners: list[
        Annotated[
            Annotated[RegexScanner, Tag("regex")]
            | Annotated[BanSubstringsScanner, Tag("ban_substrings")]
            | Annotated[SecretsScanner, Tag("secrets")]
            | Annotated[SensitiveScanner, Tag("sensitive")]
            | Annotated[InvisibleTextScanner, Tag("invisible_text")]
            | Annotated[JsonScanner, Tag("json")]
            | Annotated[TokenLimitScanner, Tag("token_limit")]
            | Annotated[ReadingTimeScanner, Tag("reading_time")],
            Discriminator(_type),
        ]
    ] = []


def load(path: Path, check: Callable[[Sequence[DetectorSpec]], object]) -> Reloadable[Policy]:
    """Load a policy file. Inside ``async with``, the returned object reloads the file when it changes.

    Args:
        path: The file.
        check: Validates the detectors by building them; raises `InvalidRequest` for an invalid detector.

    Raises:
        InvalidRequest: The file cannot be read, or is invalid.
    """
    with setting_errors("guardrails_policy_file"):
        return Reloadable(path, partial(parse, name=str(path), check=check))


def parse(raw: bytes, name: str, check: Callable[[Sequence[DetectorSpec]], object]) -> Policy:
    """Return the policy that a file contains.

    Args:
        raw: The content of the file.
        name: The name of the file in error messages.
        check: See `load`.

    Raises:
        BadFile: The file is not YAML, or has an unknown scanner or key, or an invalid value. The message names
            the line and the key.
    """
    document = Document(raw, name)
    file = document.validated(_File)
    specs: list[DetectorSpec] = []
    for index, scanner in enumerate(file.scanners):
        action = Action[(scanner.action or file.action).upper()]
        specs_of_scanner = [
            DetectorSpec(detector_id, action, params=msgspec.json.encode(params))
            for detector_id, params in scanner.detector_requests()
        ]
        try:
            check(specs_of_scanner)
        except InvalidRequest as error:
            raise document.wrong(("scanners", index), error.message) from error
        specs += specs_of_scanner
    return Policy(tuple(specs), file.block_message)
