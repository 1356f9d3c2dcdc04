"""Originals in an S3-compatible store.

Each original is an object. Its key consists of the prefix and the name of the original. Its metadata contain the
facts, and the SHA-256 of the bytes, which readers check. The module is imported only if a bucket is set, because
the library is large.
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
from servicekit.original_store import missing_original
from servicekit.secret_file import SecretFile, check_sendable

if TYPE_CHECKING:
    from obstore import GetResult
    from obstore.store import ClientConfig, S3Credential

_PART_BYTES = 8 * 1024 * 1024
"""Bytes of a part of a large original. Each part is in memory while it is sent."""
_MAX_CONCURRENT_PARTS = 2
_PIECE_BYTES = 1024 * 1024
_RESPONSE_SECONDS = 30
_RETRY_SECONDS = 2.0
_RENEW_SECONDS = 60
_MAX_FACTS_BYTES = 1536
"""Limit of the encoded facts in bytes, because a store allows 2 KB of metadata.

Above the limit, the longest facts are omitted. Without its ETag, an unchanged file may be downloaded again.
"""
_NO_BUCKET = "NoSuchBucket"
_NOT_TRUSTED = "InvalidCertificate("  # the error of rustls, the TLS library of obstore
_NAME = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,511}")
_calls = metrics.durations(
    __name__, "causeway.s3.call.duration", "Seconds of a call to the S3-compatible store, by operation and error."
)


class S3OriginalStore:
    """An `original_store.OriginalStore` in a bucket.

    An original of up to 8 MiB needs one conditional request. If several writers send it, the store keeps the bytes
    of the first one. A larger original is sent in parts, and exists only after the last request. For such an
    original, `put` first checks whether the name exists. If two writers send it concurrently, the later one
    replaces the object.

    Args:
        settings: The settings, with a bucket.

    Raises:
        InvalidRequest: A file that a setting names is invalid.
    """

    def __init__(self, settings: OriginalSettings) -> None:
        self._bucket = settings.s3_bucket
        options: ClientConfig = {
            "connect_timeout": "5s",
            "read_timeout": f"{_RESPONSE_SECONDS}s",
            "timeout": "1h",  # for a whole body; callers set shorter time-outs
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
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=_RESPONSE_SECONDS)},
                credential_provider=_credentials(settings),
            )

    async def put(self, name: str, source: BinaryIO, facts: Mapping[str, str] | None = None) -> None:
        """See `original_store.OriginalStore`."""
        _check(name)
        start = source.tell()
        content = source.read(_PART_BYTES + 1)
        if len(content) <= _PART_BYTES:
            attributes = {"sha256": await asyncio.to_thread(_sha256, io.BytesIO(content)), "facts": _encoded(facts)}
            with self._call("put"), contextlib.suppress(exceptions.AlreadyExistsError):
                await obstore.put_async(
                    self._store, name, content, mode="create", use_multipart=False, attributes=attributes
                )
            return
        del content
        source.seek(start)
        attributes = {"sha256": await asyncio.to_thread(_sha256, source), "facts": _encoded(facts)}
        source.seek(start)
        with self._call("put"):
            with contextlib.suppress(FileNotFoundError):
                await obstore.head_async(self._store, name)
                return
            await obstore.put_async(
                self._store,
                name,
                source,
                chunk_size=_PART_BYTES,
                max_concurrency=_MAX_CONCURRENT_PARTS,
                attributes=attributes,
            )

    async def read(self, name: str, target: BinaryIO) -> None:
        """See `original_store.OriginalStore`."""
        _check(name)
        with self._call("get", name):
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
            # The body of the response distinguishes a missing bucket from a missing object. HEAD has no body.
            with self._call("get", name):
                found = await obstore.get_async(self._store, name)
        except NotFound:
            return None
        return _decoded(found.attributes.get("facts", ""))

    async def remove(self, name: str) -> None:
        """See `original_store.OriginalStore`."""
        _check(name)
        with self._call("delete"):
            await obstore.delete_async(self._store, name)

    async def problem(self) -> str | None:
        """See `original_store.OriginalStore`. Checks whether the bucket can be listed."""
        try:
            with self._call("list"):
                await obstore.list_with_delimiter_async(self._store, "-health")
        except Unavailable as error:
            return error.message
        return None

    async def _pieces(self, found: "GetResult") -> AsyncIterator[memoryview]:
        pieces = found.stream(min_chunk_size=_PIECE_BYTES).__aiter__()
        while True:
            with self._call("get"):
                try:
                    piece = await pieces.__anext__()
                except StopAsyncIteration:
                    return
            yield memoryview(piece)

    @contextlib.contextmanager
    def _call(self, operation: str, name: str = "") -> Iterator[None]:
        """Convert the errors of the store to `Unavailable`, and record the duration.

        The original error is the cause, and goes to the log. If a name is given and its object is missing, the
        error is `NotFound`.
        """
        labels = {"causeway.operation": operation}
        start = time.perf_counter()
        try:
            yield
        except (exceptions.UnauthenticatedError, exceptions.PermissionDeniedError) as error:
            labels["error.type"] = "PermissionDenied"
            raise self._unavailable("refuses the credentials; an administrator must check them") from error
        except (exceptions.BaseError, OSError, TimeoutError) as error:
            missing = isinstance(error, FileNotFoundError)
            if missing and name and _NO_BUCKET not in str(error):
                raise missing_original(name) from error
            if missing or _NO_BUCKET in str(error):
                labels["error.type"] = _NO_BUCKET
                problem = f"has no bucket {self._bucket!r}; an administrator must create it"
                raise self._unavailable(problem) from error
            if _NOT_TRUSTED in str(error):
                labels["error.type"] = "CertificateNotTrusted"
                problem = "has a certificate that is not trusted; an administrator must check CAUSEWAY_S3_CA_FILE"
                raise self._unavailable(problem) from error
            labels["error.type"] = "Unavailable"
            raise self._unavailable("cannot be reached. Try again shortly") from error
        finally:
            _calls.record(time.perf_counter() - start, labels)

    def _unavailable(self, problem: str) -> Unavailable:
        return Unavailable(f"The store of the originals {problem}.", retry_after=_RETRY_SECONDS)


class _FileCredentials:
    """An access key in two files. Each file is read again when it changes."""

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
        return None  # the library then reads the environment in the same way as Amazon's tools
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
        location = f" ({path})" if path else ""
        raise InvalidRequest(f"{variable}{location} cannot be used: {reason}.") from error


def _check(name: str) -> None:
    """Refuse an invalid name of an original. Slashes, percent signs, ``.`` and ``..`` have a meaning in keys."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"Not a name of an original: {name[:200]!r}.")


def _sha256(source: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := source.read(_PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _encoded(facts: Mapping[str, str] | None) -> str:
    """Return the facts as an ASCII header value. If the value is too long, the longest facts are omitted."""
    included = sorted((facts or {}).items(), key=lambda fact: len(fact[1]))
    while len(text := base64.urlsafe_b64encode(json.dumps(dict(included)).encode()).decode()) > _MAX_FACTS_BYTES:
        included.pop()
    return text


def _decoded(text: str) -> dict[str, str]:
    try:
        facts = json.loads(base64.urlsafe_b64decode(text) or b"{}")
    except (ValueError, binascii.Error):
        return {}  # another program wrote the object
    return {str(key): str(value) for key, value in facts.items()} if isinstance(facts, dict) else {}
