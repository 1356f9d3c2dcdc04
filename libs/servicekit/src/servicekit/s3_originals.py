"""Originals in an S3-compatible store.

An original is an object whose key is its name after the prefix. Its metadata hold the SHA-256 of its bytes, which
readers check, and its facts. The module is only imported if a bucket is set, because the library is large.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import io
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import obstore
from obstore import exceptions
from obstore.store import S3Store

from servicekit import metrics
from servicekit.errors import InvalidRequest, NotFound, Unavailable
from servicekit.original_settings import OriginalSettings
from servicekit.original_store import gone
from servicekit.secret_file import SecretFile, check_sendable

if TYPE_CHECKING:
    from obstore import GetResult
    from obstore.store import ClientConfig, S3Credential

_PART = 8 * 1024 * 1024
"""Bytes of a part of a large original; each part that is being sent is in memory."""
_PARTS_AT_ONCE = 2
_PIECE = 1024 * 1024
_ANSWER_SECONDS = 30
_RETRY_SECONDS = 2.0
_RENEW_SECONDS = 60
_LONGEST_FACTS = 1536
"""A store allows 2 KB of metadata. A missing fact may cost an additional download."""
_NO_BUCKET = "NoSuchBucket"
_NOT_TRUSTED = "InvalidCertificate("  # as rustls, the TLS library of obstore, calls it
_NAME = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,511}")
_calls = metrics.durations(
    __name__, "causeway.s3.call.duration", "Seconds of a call to the S3-compatible store, by operation and error."
)


class S3OriginalStore:
    """An `original_store.OriginalStore` in a bucket.

    An original of up to 8 MiB takes one conditional request: of several writers one wins, and the bytes of the
    others are dropped. A larger one is sent in parts, and exists after the last request. Whether the name exists is
    checked before; of two concurrent writers, the later one replaces the object of the earlier one.

    Args:
        settings: The settings, with a bucket.

    Raises:
        InvalidRequest: A file of the settings is invalid.
    """

    def __init__(self, settings: OriginalSettings) -> None:
        self._bucket = settings.s3_bucket
        options: ClientConfig = {
            "connect_timeout": "5s",
            "read_timeout": f"{_ANSWER_SECONDS}s",
            "timeout": "1h",  # for a whole body; the caller's time-out is shorter
            "allow_http": settings.s3_endpoint.startswith("http://"),
        }
        if settings.s3_ca_file is not None:
            with _usable("CAUSEWAY_S3_CA_FILE", settings.s3_ca_file):
                options["root_certificate"] = settings.s3_ca_file.read_bytes()
        with _usable("CAUSEWAY_S3_ENDPOINT, CAUSEWAY_S3_CA_FILE or AWS_…", None):
            self._store = S3Store(
                settings.s3_bucket,
                prefix=settings.s3_prefix or None,
                endpoint=settings.s3_endpoint or None,
                region=settings.s3_region,
                checksum_algorithm="sha256",
                client_options=options,
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=_ANSWER_SECONDS)},
                credential_provider=_credentials(settings),
            )

    async def put(self, name: str, source: BinaryIO, facts: Mapping[str, str] | None = None) -> None:
        """See `original_store.OriginalStore`."""
        _check(name)
        begin = source.tell()
        content = source.read(_PART + 1)
        if len(content) <= _PART:
            attributes = {"sha256": await asyncio.to_thread(_sha256, io.BytesIO(content)), "facts": _encoded(facts)}
            with self._answers("put"), contextlib.suppress(exceptions.AlreadyExistsError):
                await obstore.put_async(
                    self._store, name, content, mode="create", use_multipart=False, attributes=attributes
                )
            return
        del content
        source.seek(begin)
        attributes = {"sha256": await asyncio.to_thread(_sha256, source), "facts": _encoded(facts)}
        source.seek(begin)
        with self._answers("put"):
            with contextlib.suppress(FileNotFoundError):
                await obstore.head_async(self._store, name)
                return
            await obstore.put_async(
                self._store,
                name,
                source,
                chunk_size=_PART,
                max_concurrency=_PARTS_AT_ONCE,
                attributes=attributes,
            )

    async def read(self, name: str, target: BinaryIO) -> None:
        """See `original_store.OriginalStore`."""
        _check(name)
        with self._answers("get", name):
            found = await obstore.get_async(self._store, name)
        digest, size = hashlib.sha256(), 0
        async for piece in self._pieces(found):
            digest.update(piece)
            size += len(piece)
            target.write(piece)
        stored = found.attributes.get("sha256", "")
        if size != found.meta["size"] or stored not in ("", digest.hexdigest()):
            raise Unavailable("The original of the document is damaged: its SHA-256 does not match.")

    async def facts(self, name: str) -> Mapping[str, str] | None:
        """See `original_store.OriginalStore`."""
        _check(name)
        try:
            # Not HEAD: its response has no body, which would distinguish a missing bucket from a missing object.
            with self._answers("get", name):
                found = await obstore.get_async(self._store, name)
        except NotFound:
            return None
        return _decoded(found.attributes.get("facts", ""))

    async def remove(self, name: str) -> None:
        """See `original_store.OriginalStore`."""
        _check(name)
        with self._answers("delete"):
            await obstore.delete_async(self._store, name)

    async def problem(self) -> str | None:
        """See `original_store.OriginalStore`. Checks whether the bucket can be listed."""
        try:
            with self._answers("list"):
                await obstore.list_with_delimiter_async(self._store, "-health")
        except Unavailable as error:
            return error.message
        return None

    async def _pieces(self, found: "GetResult") -> AsyncIterator[memoryview]:
        pieces = found.stream(min_chunk_size=_PIECE).__aiter__()
        while True:
            with self._answers("get"):
                try:
                    piece = await pieces.__anext__()
                except StopAsyncIteration:
                    return
            yield memoryview(piece)

    @contextlib.contextmanager
    def _answers(self, operation: str, name: str = "") -> Iterator[None]:
        """Turn the errors of an unavailable store into `Unavailable`; the cause goes to the log."""
        labels = {"causeway.operation": operation}
        begin = time.perf_counter()
        try:
            yield
        except (exceptions.UnauthenticatedError, exceptions.PermissionDeniedError) as error:
            labels["error.type"] = "PermissionDenied"
            raise self._away("refuses the credentials; an administrator must check them") from error
        except (exceptions.BaseError, OSError, TimeoutError) as error:
            missing = isinstance(error, FileNotFoundError)
            if missing and name and _NO_BUCKET not in str(error):
                raise gone(name) from error
            if missing or _NO_BUCKET in str(error):
                labels["error.type"] = _NO_BUCKET
                raise self._away(f"has no bucket {self._bucket!r}; an administrator must create it") from error
            if _NOT_TRUSTED in str(error):
                labels["error.type"] = "CertificateNotTrusted"
                problem = (
                    "has a certificate that is not trusted; an administrator has to look at CAUSEWAY_S3_CA_FILE"
                )
                raise self._away(problem) from error
            labels["error.type"] = "Unavailable"
            raise self._away("cannot be reached. Try again shortly") from error
        finally:
            _calls.record(time.perf_counter() - begin, labels)

    def _away(self, problem: str) -> Unavailable:
        return Unavailable(f"The store of the originals {problem}.", retry_after=_RETRY_SECONDS)


class _FileCredentials:
    """An access key in two files, which are read again when they change."""

    def __init__(self, access_key: SecretFile, secret_key: SecretFile) -> None:
        self._access_key = access_key
        self._secret_key = secret_key

    def __call__(self) -> "S3Credential":
        return {
            "access_key_id": self._access_key.get_secret_value(),
            "secret_access_key": self._secret_key.get_secret_value(),
            "expires_at": datetime.now(UTC) + timedelta(seconds=_RENEW_SECONDS),
        }


def _credentials(settings: OriginalSettings) -> _FileCredentials | None:
    if settings.s3_access_key_file is None or settings.s3_secret_key_file is None:
        return None  # the library then reads the environment, like Amazon's tools
    with _usable("CAUSEWAY_S3_ACCESS_KEY_FILE", settings.s3_access_key_file):
        access_key = SecretFile(settings.s3_access_key_file, check_sendable)
    with _usable("CAUSEWAY_S3_SECRET_KEY_FILE", settings.s3_secret_key_file):
        secret_key = SecretFile(settings.s3_secret_key_file, check_sendable)
    return _FileCredentials(access_key, secret_key)


@contextlib.contextmanager
def _usable(variable: str, path: Path | None) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, exceptions.BaseError) as error:
        # The message of a UnicodeDecodeError would contain a part of the file.
        reason = type(error).__name__ if isinstance(error, UnicodeError) else str(error).splitlines()[0]
        where = f" ({path})" if path else ""
        raise InvalidRequest(f"{variable}{where} cannot be used: {reason}.") from error


def _check(name: str) -> None:
    """Refuse an invalid name of an original: slashes, dots and percent signs have a meaning in keys."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"Not a name of an original: {name[:200]!r}.")


def _sha256(source: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := source.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()


def _encoded(facts: Mapping[str, str] | None) -> str:
    """Return the facts as an ASCII header value; the longest facts are left out if the value is too long."""
    left = sorted((facts or {}).items(), key=lambda each: len(each[1]))
    while len(text := base64.urlsafe_b64encode(json.dumps(dict(left)).encode()).decode()) > _LONGEST_FACTS:
        left.pop()
    return text


def _decoded(text: str) -> dict[str, str]:
    try:
        facts = json.loads(base64.urlsafe_b64decode(text) or b"{}")
    except (ValueError, binascii.Error):
        return {}  # another program wrote it
    return {str(key): str(value) for key, value in facts.items()} if isinstance(facts, dict) else {}
