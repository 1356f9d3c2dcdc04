"""Parses the configuration file of remote detectors."""

import ssl
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from detection.chunking.chunkers import Chunking
from detection.domain import DetectorKind
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator
from servicekit.yaml_file import Document, Key
from yarl import URL

# The service does not forward these headers: they describe the connection or the body, or belong to the detector
# API.
# fmt: off
_FORBIDDEN_HEADERS = frozenset((
    "host", "connection", "content-length", "content-type", "content-encoding", "transfer-encoding", "te",
    "upgrade", "trailer", "keep-alive",
    "proxy-authorization", "proxy-authenticate", "accept-encoding", "detector-id",
))
# fmt: on
_BUILT_IN_CHUNKERS = tuple(chunking.value for chunking in Chunking)
Header = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9-]+$", to_lower=True)]


@dataclass(frozen=True, slots=True)
class ChunkerConfig:
    """The configuration of a remote chunker.

    Attributes:
        name: The name in the file.
        target: The gRPC target of the server.
        chunker_id: The name of the chunker on the server; empty if the server has only one chunker.
        seconds: The time limit for each piece of a text that the service sends.
        credentials: For TLS, in PEM: the CA certificates, the client's certificate and its private key; each may
            be None. None instead of the tuple: the connection does not use TLS.
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
        detector_id: The name in requests and on the detector's server.
        kind: The kind of input, which determines the URL path of the requests.
        url: The base URL of the server.
        seconds: The time limit of one call, including the wait for a free slot.
        chunking: The built-in chunker. With a remote chunker it is SENTENCE, because its chunks have the length
            limit of a sentence.
        threshold: The default threshold; the detector ignores detections with a lower score.
        concurrency: The maximum number of concurrent calls to the server; further calls wait.
        tls: The TLS settings for ``https``; None: trust the system's certificate authorities.
        headers: The names, in lower case, of the caller's headers that the service forwards to the server.
        cross_choice: Whether one call judges all choices of an answer together; ``across_choices`` in the file.
        chunker: The remote chunker; None: a built-in chunker.
        description: The purpose of the detector.
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


class _Certificates(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None  # if it is None, the file `cert` also contains the key

    @model_validator(mode="after")
    def _key_has_certificate(self) -> Self:
        if self.key is not None and self.cert is None:
            raise ValueError("key needs cert, the certificate of this key")
        return self

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


class _Tls(_Certificates):
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        context = super().context()
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
            raise ValueError("must be http://host:port or https://host:port, without a query or a fragment")
        return value


class _Chunker(BaseModel):
    model_config = ConfigDict(extra="forbid")

    target: Annotated[str, StringConstraints(pattern=r"^[^\s]{1,500}$")]
    chunker_id: str = Field("", max_length=100)
    timeout: float = Field(10.0, gt=0, le=600)
    tls: _Certificates | None = None
    protocol: Literal["causeway", "caikit"] = "causeway"

    def config(self, name: str) -> ChunkerConfig:
        credentials = None
        if self.tls is not None:
            self.tls.context()  # raises an error for invalid files; gRPC would only fail later
            # gRPC ends the process if it gets a certificate without a key.
            credentials = (_pem(self.tls.ca), _pem(self.tls.cert), _pem(self.tls.key or self.tls.cert))
        return ChunkerConfig(name, self.target, self.chunker_id, self.timeout, credentials, self.protocol)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    headers: list[Header] = []
    chunkers: dict[Annotated[str, StringConstraints(pattern=r"^[\w.:/-]{1,100}$")], _Chunker] = {}
    detectors: dict[Annotated[str, StringConstraints(pattern=r"^[\w.:/-]{1,100}$")], _Detector] = {}


def parse(raw: bytes, name: str, reserved: Collection[str] = ()) -> tuple[RemoteConfig, ...]:
    """Return the remote detectors of a file.

    Args:
        raw: The content of the file.
        name: The name of the file in error messages.
        reserved: The names of the built-in detectors, which a remote detector must not have.

    Raises:
        BadFile: The file is not YAML, or has an unknown key, an invalid value, the name of a built-in detector or
            chunker, or an unusable certificate. The message names the line and the key.
    """
    document = Document(raw, name)
    file = document.validated(_File)
    _check_headers(document, (), file.headers)
    chunkers = {}
    for chunker, entry in file.chunkers.items():
        if chunker in _BUILT_IN_CHUNKERS:
            raise document.wrong(("chunkers", chunker), "a built-in chunker has this name; use another name")
        try:
            chunkers[chunker] = entry.config(chunker)
        except (OSError, ValueError) as error:
            place: Key = ("chunkers", chunker, "tls")
            raise document.wrong(place, f"cannot load the certificates: {error}") from None
    configs = []
    for detector_id, detector in file.detectors.items():
        place = ("detectors", detector_id)
        if detector_id in reserved:
            raise document.wrong(place, "a built-in detector has this name; use another name")
        _check_headers(document, place, detector.headers)
        if detector.chunker not in (None, *_BUILT_IN_CHUNKERS, *chunkers):
            known = ", ".join((*_BUILT_IN_CHUNKERS, *chunkers))
            raise document.wrong((*place, "chunker"), f"unknown chunker; use one of: {known}")
        if detector.chunker not in (None, "whole_doc") and detector.kind == "text_chat":
            raise document.wrong((*place, "chunker"), "a text_chat detector needs the chunker whole_doc")
        is_contents = detector.kind == "text_contents"
        if detector.across_choices and not is_contents:
            raise document.wrong(
                (*place, "across_choices"), "only a text_contents detector can judge all choices in one call"
            )
        if detector.across_choices and detector.chunker not in (None, "whole_doc"):
            raise document.wrong((*place, "chunker"), "a detector with across_choices needs the chunker whole_doc")
        try:
            tls = detector.tls.context() if detector.tls is not None else None
        except (OSError, ValueError) as error:
            raise document.wrong((*place, "tls"), f"cannot load the certificates: {error}") from None
        configs.append(
            RemoteConfig(
                detector_id,
                DetectorKind(detector.kind),
                URL(detector.url.rstrip("/")),
                detector.timeout,
                _chunking(detector, is_contents=is_contents),
                detector.default_threshold,
                detector.concurrency,
                tls,
                frozenset((*file.headers, *detector.headers)),
                detector.across_choices,
                chunkers.get(detector.chunker or ""),
                detector.description,
            )
        )
    return tuple(configs)


def _check_headers(document: Document, place: Key, headers: Sequence[str]) -> None:
    for index, header in enumerate(headers):
        if header in _FORBIDDEN_HEADERS:
            raise document.wrong((*place, "headers", index), f"the header {header} is never passed on; remove it")


def _chunking(detector: _Detector, *, is_contents: bool) -> Chunking:
    if detector.chunker is None:
        return Chunking.SENTENCE if is_contents and not detector.across_choices else Chunking.WHOLE
    # The chunks of a remote chunker have the same length limit as sentences.
    return Chunking(detector.chunker) if detector.chunker in _BUILT_IN_CHUNKERS else Chunking.SENTENCE


def _pem(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
