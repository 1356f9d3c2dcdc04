"""Settings from the environment, read once in each process's composition root."""

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """What every service can be told. Variables begin with ``CAUSEWAY_``; unknown ones are of other services."""

    model_config = SettingsConfigDict(env_prefix="CAUSEWAY_", extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_paths(cls, said: Any) -> Any:
        """An empty variable of a path leaves the setting out: else it would mean the current directory."""
        if not isinstance(said, dict):
            return said
        fields = cls.model_fields
        paths = {name for name, field in fields.items() if field.annotation in (Path, Path | None)}
        return {name: value for name, value in said.items() if value != "" or name not in paths}

    host: str = Field("127.0.0.1", description="Address to listen on.")
    log_level: str = Field(
        "INFO", pattern="(?i)^(debug|info|warning|error)$", description="DEBUG, INFO, WARNING or ERROR."
    )
    log_format: str = Field("auto", pattern="^(auto|json|console)$", description="auto: console on a terminal.")
    otlp_endpoint: str | None = Field(
        None, description="gRPC endpoint that traces are sent to; none: no export, trace ids are still made."
    )
    trace_sample_ratio: float = Field(1.0, ge=0, le=1, description="Share of traces that are recorded.")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the metrics in Prometheus' text format; none: they are not measured, but by the "
        "gateway, which has them on its own port in any case.",
    )
    shutdown_grace: float = Field(30.0, ge=0, description="Seconds that running requests get after SIGTERM.")
    tls_cert_file: Path | None = Field(
        None, description="PEM file: the certificate that this process shows other services; none: no TLS."
    )
    tls_key_file: Path | None = Field(None, description="PEM file: the certificate's key.")
    tls_ca_file: Path | None = Field(
        None, description="PEM file: who vouches for the certificates of other services and of NATS."
    )
    health_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of gRPC health checks without TLS, for probes; none: the service's own port alone.",
    )


class GrpcServiceSettings(ServiceSettings):
    """What every service with a gRPC server can be told."""

    grpc_socket: Path | None = Field(
        None,
        description="Unix socket to listen on instead of a port, in a directory that only its owner may enter: "
        "processes of other users of the machine cannot connect. Callers name it as the target `unix:PATH`.",
    )
