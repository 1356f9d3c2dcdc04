"""An S3-compatible store for tests: moto's HTTP server, in a separate environment (``make .venv/.s3``)."""

import contextlib
import http.client
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from servicekit.original_settings import OriginalSettings

from causeway_testing.servers import free_ports

_PYTHON = Path(sys.prefix) / "s3/bin/python"
_START_SECONDS = 90.0
# moto accepts every signature, and reads the region from the header.
_SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, "
    "Signature=none"
}


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Start an empty store, yield its URL, and kill it at the end."""
    if not _PYTHON.exists():
        raise RuntimeError("moto is not installed. Install it with: make .venv/.s3")
    [port] = free_ports(1)
    process = subprocess.Popen(
        [_PYTHON, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        endpoint = f"http://127.0.0.1:{port}"
        _await_answer(endpoint, process)
        yield endpoint
    finally:
        process.kill()
        process.wait()


def request(endpoint: str, method: str, path: str) -> tuple[int, str]:
    """Send a request to the store, and return the status and the body of the response."""
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=30)
    try:
        connection.request(method, path, headers=_SIGNED)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def bucket_settings(endpoint: str, directory: Path) -> OriginalSettings:
    """Create a bucket, and return its settings, with the access key in files of a directory."""
    bucket = f"test-{uuid.uuid4().hex}"
    status, body = request(endpoint, "PUT", f"/{bucket}")
    assert status == 200, body
    access_key, secret_key = directory / "access-key", directory / "secret-key"
    access_key.write_text("test\n")
    secret_key.write_text("secret\n")
    return OriginalSettings(
        s3_bucket=bucket,
        s3_prefix="originals",
        s3_endpoint=endpoint,
        s3_access_key_file=access_key,
        s3_secret_key_file=secret_key,
    )


def keys_in(settings: OriginalSettings) -> list[str]:
    """Return the keys of the objects in a bucket."""
    _, listed = request(settings.s3_endpoint, "GET", f"/{settings.s3_bucket}?list-type=2")
    return [part.partition("</Key>")[0] for part in listed.split("<Key>")[1:]]


def _await_answer(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            request(endpoint, "GET", "/")
            return
        if process.poll() is not None:
            raise RuntimeError(f"moto ended with {process.returncode}")
        time.sleep(0.05)
    raise TimeoutError("moto does not answer")
