"""Settings from the environment, which each process's composition root reads once."""

import difflib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from servicekit.setting_names import NAMES

_PREFIX = "CAUSEWAY_"
# Variables of clients and tests, and those that Kubernetes sets for a service whose name begins with "causeway".
_OTHERS = re.compile(
    r"CAUSEWAY_((API_)?KEY|URL|QDRANT_SERVER|TEST_QDRANT|LEAKS|(E2E|FUZZ|SOAK|CONFORMANCE|RESPONSE)_[A-Z_]+"
    r"|(.+_)?SERVICE_(HOST|PORT)(_.+)?|(.+_)?PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def unknown_variables(variables: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each variable that looks like a setting but belongs to no service, and a setting with a similar name.

    The second element is None if no setting has a similar name.

    Args:
        variables: The names of the variables of the environment.
    """
    for name in sorted(variable for variable in variables if variable.upper().startswith(_PREFIX)):
        if name.upper() not in NAMES and _OTHERS.fullmatch(name.upper()) is None:
            suffix = name.upper().removeprefix(_PREFIX)
            matches = difflib.get_close_matches(suffix, [setting.removeprefix(_PREFIX) for setting in NAMES], 1)
            yield name, _PREFIX + matches[0] if matches else None


class ServiceSettings(BaseSettings):
    """The settings of all services. Variables begin with ``CAUSEWAY_``. Services may share one environment."""

    model_config = SettingsConfigDict(env_prefix="CAUSEWAY_", extra="ignore", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_paths(cls, values: Any) -> Any:
        """Ignore an empty variable of a path. As a path, an empty text would mean the current directory."""
        if not isinstance(values, dict):
            return values
        fields = cls.model_fields
        paths = {name for name, field in fields.items() if field.annotation in (Path, Path | None)}
        return {name: value for name, value in values.items() if value != "" or name not in paths}

    host: str = Field("127.0.0.1", description="Address to listen on.")
    log_level: str = Field(
        "INFO",
        pattern="(?i)^(debug|info|warning|error)$",
        description="Lowest level of the log lines: DEBUG, INFO, WARNING or ERROR.",
    )
    log_format: str = Field(
        "auto",
        pattern="^(auto|json|console)$",
        description="Format of the log: json (a JSON object on each line), console (coloured text), or auto "
        "(console on a terminal, else json).",
    )
    otlp_endpoint: str | None = Field(
        None, description="gRPC endpoint for traces. Unset: traces have ids and are not exported."
    )
    trace_sample_ratio: float = Field(1.0, ge=0, le=1, description="Share of traces that are recorded.")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the metrics in Prometheus' text format. Unset: a service records no metrics. The "
        "gateway also serves its metrics on its HTTP port.",
    )
    shutdown_grace: float = Field(
        30.0, ge=0, description="Maximum seconds until running requests have ended after SIGTERM."
    )
    tls_cert_file: Path | None = Field(
        None,
        description="PEM file with the certificate that this process presents to other services. Unset: the "
        "process uses no TLS.",
    )
    tls_key_file: Path | None = Field(None, description="PEM file with the certificate's key.")
    tls_ca_file: Path | None = Field(
        None, description="PEM file with the certificate authority of the other services and of NATS."
    )
    health_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of gRPC health checks without TLS, for probes. Unset: health checks are only on the "
        "service's port.",
    )


class GrpcServiceSettings(ServiceSettings):
    """The settings of all services with a gRPC server."""

    grpc_socket: Path | None = Field(
        None,
        description="Unix socket to listen on instead of a port, in a directory that only its owner may enter, so "
        "that other users of the machine cannot connect. Callers use the target `unix:PATH`.",
    )
