"""Mutual TLS between the services, with files that may be replaced while the process runs.

A program that renews certificates (cert-manager, Vault) replaces the files, and the next handshake uses the new
files. While the files do not match, for example during a replacement, handshakes use the old certificate.
"""

import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc
import structlog

from servicekit import metrics
from servicekit.errors import InvalidRequest
from servicekit.settings import ServiceSettings

_log = structlog.get_logger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Material:
    """The input of a handshake, as PEM: the process's certificate, its key, and its peers' CA certificates."""

    certificate: bytes
    key: bytes
    authority: bytes


class Certificates:
    """The certificate of a process, and the certificate authority (CA) of its peers.

    Args:
        certificate: PEM file with the certificate and the chain to its CA.
        key: PEM file with its key.
        authority: PEM file with the CA certificates that verify the peers' certificates.
        interval: Seconds between checks of the files.

    Raises:
        InvalidRequest: A file cannot be read, or the key does not match the certificate.
    """

    def __init__(self, certificate: Path, key: Path, authority: Path, *, interval: float = 1.0) -> None:
        self._files = (certificate, key, authority)
        self._interval = interval
        self._checked_at = time.monotonic()
        self._stamp = self._file_stamps()
        self._refused: _Stamp | None = None
        try:
            self._material, self._context = self._read()
        except (OSError, ssl.SSLError) as error:
            raise InvalidRequest(f"TLS: {_problem(error)}", field="tls_cert_file") from error

    @classmethod
    def of(cls, settings: ServiceSettings) -> Self | None:
        """Return the certificates of the settings, or None if no file is set.

        Raises:
            InvalidRequest: Only some of the three files are set; or see the constructor.
        """
        files = {
            "tls_cert_file": settings.tls_cert_file,
            "tls_key_file": settings.tls_key_file,
            "tls_ca_file": settings.tls_ca_file,
        }
        if not any(files.values()):
            return None
        missing = [name for name, file in files.items() if file is None]
        if missing:
            names = " and ".join(f"CAUSEWAY_{name.upper()}" for name in missing)
            raise InvalidRequest(f"TLS needs all three files. Also set {names}.", field=missing[0])
        certificate, key, authority = (file for file in files.values() if file is not None)
        return cls(certificate, key, authority)

    def current(self) -> Material:
        """Return the last valid content of the files. The object is the same until the files change."""
        now = time.monotonic()
        if now - self._checked_at < self._interval:
            return self._material
        self._checked_at = now
        stamp = self._file_stamps()
        if stamp not in (self._stamp, self._refused):
            try:
                self._material, self._context = self._read()
            except (OSError, ssl.SSLError) as error:
                self._refused = stamp
                _log.warning("cannot use the new certificates", error=_problem(error))
            else:
                self._stamp = stamp
                _log.info("certificates renewed", file=str(self._files[0]))
        return self._material

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a gRPC server with client certificates; each handshake uses the current files."""
        served = self.current()

        def renewed() -> "grpc.ServerCertificateConfiguration | None":
            nonlocal served
            if (material := self.current()) is served:
                return None
            served = material
            return _configuration(material)

        credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            _configuration(served),
            renewed,  # type: ignore[arg-type]  # gRPC's documentation allows None for no change
            require_client_authentication=True,
        )
        return credentials

    def client_context(self) -> ssl.SSLContext:
        """Return the context for a client handshake outside gRPC. It trusts only the CA of the settings.

        Callers must request the context before each handshake.
        """
        self.current()
        return self._context

    def _file_stamps(self) -> _Stamp:
        # `os.stat` follows links. Kubernetes replaces a link to the directory of all files.
        stamps = []
        for file in self._files:
            try:
                stat = os.stat(file)
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return tuple(stamps)

    def _read(self) -> tuple[Material, ssl.SSLContext]:
        certificate, key, authority = self._files
        # `load_cert_chain` does not name a missing file, so read the files first.
        material = Material(certificate.read_bytes(), key.read_bytes(), authority.read_bytes())
        # A context keeps its loaded certificates, so a failed reload would break an existing context.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(authority)
        return material, context


def export_expiry(settings: ServiceSettings) -> None:
    """Export the expiry of the process's certificate as a metric."""
    file = settings.tls_cert_file
    if file is not None:
        metrics.observed(
            __name__,
            "causeway.tls.certificate.not_after",
            "s",
            "Expiry of the process's certificate, in seconds since 1970.",
            lambda: _expiry(file),
        )


def _expiry(file: Path) -> list[tuple[float, dict[str, str]]]:
    from cryptography import x509  # imported here because the import costs 20 ms and 8 MB

    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):  # a handshake reports the problem
        return []
    return [(certificate.not_valid_after_utc.timestamp(), {})]


def channel_credentials(material: Material) -> grpc.ChannelCredentials:
    """Return credentials for a gRPC channel that presents the certificate and trusts only the CA."""
    return grpc.ssl_channel_credentials(material.authority, material.key, material.certificate)


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], root_certificates=material.authority
    )


def _problem(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"the files do not match or are not PEM ({error.reason or error})"
    return f"{error.filename}: {error.strerror}"
