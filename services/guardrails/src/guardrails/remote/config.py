"""The configuration file of remote detectors."""

import ssl
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from detection.chunking.chunkers import Chunking
from detection.domain import DetectorKind
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator
from servicekit.yaml_file import Document, Key
from yarl import URL

# Headers of one connection, of the body, or of the detector API itself.
# fmt: off
_NEVER_PASSED = frozenset((
    "host", "connection", "content-length", "content-type", "content-encoding", "transfer-encoding", "te",
    "upgrade", "trailer", "keep-alive",
    "proxy-authorization", "proxy-authenticate", "accept-encoding", "detector-id",
))
# fmt: on
_OWN_CHUNKERS = tuple(each.value for each in Chunking)
Header = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9-]+$", to_lower=True)]


@dataclass(frozen=True, slots=True)
class ChunkerConfig:
    """The configuration of a remote chunker.

    Attributes:
        name: Its name in the file.
        target: Its gRPC target.
        chunker_id: Its name on the server; empty for the only one.
        seconds: Time limit of a piece.
        credentials: For TLS: the authorities' certificates, the client's certificate and its key, each PEM or None.
            Without credentials, the connection does not use TLS.
        protocol: The protocol of the server.
    """

    name: str
    target: str
    chunker_id: str = ""
    seconds: float = 10.0
    credentials: tuple[bytes | None, bytes | None, bytes | None] | None = None
    protocol: Literal["causeway", "caikit"] = "causeway"


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """The configuration of one remote detector.

    Attributes:
        detector_id: Its name in requests and on its server.
        kind: The kind of its input, which determines the path of its requests.
        url: The base URL of its server.
        seconds: Time limit of one answer, including the wait for a free slot.
        chunking: The kind of its windows.
        threshold: The default threshold; detections with a lower score are ignored.
        concurrency: Limit of concurrent calls; further calls wait.
        tls: The TLS settings for ``https``; None: the system's authorities.
        headers: The caller's headers that its server gets, in lower case.
        cross_choice: See `Judge`.
        chunker: The remote chunker of its windows, if it has one.
        description: Its purpose.
    """

    detector_id: str
    kind: DetectorKind
    url: URL
    seconds: float = 10.0
    chunking: Chunking = Chunking.SENTENCE
    threshold: float = 0.0
    concurrency: int = 16
    tls: ssl.SSLContext | None = None
    headers: frozenset[str] = frozenset()
    cross_choice: bool = False
    chunker: ChunkerConfig | None = None
    description: str = ""


class _Tls(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class _Detector(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["text_contents", "text_chat", "text_context_doc", "text_generation"]
    url: str = Field(max_length=2000)
    timeout: float = Field(10.0, gt=0, le=600)
    chunker: str | None = None
    default_threshold: float = Field(0.0, ge=0, le=1)
    concurrency: int = Field(16, ge=1, le=1000)
    tls: _Tls | None = None
    headers: list[Header] = []
    across_choices: bool = False
    description: str = ""

    @field_validator("url")
    @classmethod
    def _address(cls, value: str) -> str:
        url = URL(value)
        if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment:
            raise ValueError("the url must be http://host:port or https://host:port, without a query or a fragment")
        return value


class _ChunkerTls(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class _Chunker(BaseModel):
    model_config = ConfigDict(extra="forbid")

    target: Annotated[str, StringConstraints(pattern=r"^[^\s]{1,500}$")]
    chunker_id: str = Field("", max_length=100)
    timeout: float = Field(10.0, gt=0, le=600)
    tls: _ChunkerTls | None = None
    protocol: Literal["causeway", "caikit"] = "causeway"

    def config(self, name: str) -> ChunkerConfig:
        credentials = None
        if self.tls is not None:
            credentials = (_pem(self.tls.ca), _pem(self.tls.cert), _pem(self.tls.key))
        return ChunkerConfig(name, self.target, self.chunker_id, self.timeout, credentials, self.protocol)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    headers: list[Header] = []
    chunkers: dict[Annotated[str, StringConstraints(pattern=r"^[\w.:/-]{1,100}$")], _Chunker] = {}
    detectors: dict[Annotated[str, StringConstraints(pattern=r"^[\w.:/-]{1,100}$")], _Detector] = {}


def parse(raw: bytes, name: str, taken: Collection[str] = ()) -> tuple[RemoteConfig, ...]:
    """Return the remote detectors of a file.

    Args:
        raw: The content of the file.
        name: The name of the file in messages.
        taken: Names of the built-in detectors.

    Raises:
        BadFile: Not YAML, an unknown key, an invalid value, a taken name, or an unreadable certificate; the message
            names the line and the key.
    """
    document = Document(raw, name)
    file = document.validated(_File)
    chunkers = {}
    for chunker, entry in file.chunkers.items():
        if chunker in _OWN_CHUNKERS:
            raise document.wrong(("chunkers", chunker), "a built-in chunker has this name")
        try:
            chunkers[chunker] = entry.config(chunker)
        except OSError as error:
            place: Key = ("chunkers", chunker, "tls")
            raise document.wrong(place, f"cannot load the certificates: {error}") from None
    configs = []
    for detector_id, said in file.detectors.items():
        place = ("detectors", detector_id)
        if detector_id in taken:
            raise document.wrong(place, "a built-in detector has this name")
        headers = frozenset((*file.headers, *said.headers))
        if headers & _NEVER_PASSED:
            raise document.wrong(place, f"the header {min(headers & _NEVER_PASSED)} cannot be passed on")
        if said.chunker not in (None, *_OWN_CHUNKERS, *chunkers):
            known = ", ".join((*_OWN_CHUNKERS, *chunkers))
            raise document.wrong((*place, "chunker"), f"unknown chunker; the known ones are {known}")
        if said.chunker not in (None, "whole_doc") and said.kind == "text_chat":
            raise document.wrong((*place, "chunker"), "a text_chat detector needs the chunker whole_doc")
        contents = said.kind == "text_contents"
        if said.across_choices and not contents:
            raise document.wrong((*place, "across_choices"), "only text_contents detectors can judge several texts")
        try:
            tls = said.tls.context() if said.tls is not None else None
        except (OSError, ValueError) as error:
            raise document.wrong((*place, "tls"), f"cannot load the certificates: {error}") from None
        configs.append(
            RemoteConfig(
                detector_id,
                DetectorKind(said.kind),
                URL(said.url.rstrip("/")),
                said.timeout,
                _chunking(said, contents=contents),
                said.default_threshold,
                said.concurrency,
                tls,
                headers,
                said.across_choices,
                chunkers.get(said.chunker or ""),
                said.description,
            )
        )
    return tuple(configs)


def _chunking(said: _Detector, *, contents: bool) -> Chunking:
    if said.chunker is None:
        return Chunking.SENTENCE if contents and not said.across_choices else Chunking.WHOLE
    # The limit of a sentence also applies to a chunk of a remote chunker.
    return Chunking(said.chunker) if said.chunker in _OWN_CHUNKERS else Chunking.SENTENCE


def _pem(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
