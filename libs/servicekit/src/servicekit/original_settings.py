"""The settings of the store of originals, shared by gateway and workers."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from servicekit.settings import ServiceSettings


class OriginalSettings(ServiceSettings):
    """The settings of the store of originals."""

    s3_bucket: str = Field(
        "",
        pattern=r"^([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?$",
        description="Bucket of an S3-compatible store for the originals of documents (docs/originals.md). "
        "Empty: NATS stores them. Set the same value for gateway and workers, as for all `CAUSEWAY_S3_…`.",
    )
    s3_prefix: str = Field(
        "",
        max_length=200,
        pattern=r"^([A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*)?$",
        description="Prefix of the keys of originals in the bucket, without a slash at its end.",
    )
    s3_endpoint: str = Field(
        "",
        max_length=500,
        pattern=r"^(https?://[A-Za-z0-9.:\[\]-]+)?$",
        description="URL of the S3-compatible store, such as `https://minio.example.org:9000`. Empty: Amazon S3. "
        "With `http://`, originals and requests are not encrypted.",
    )
    s3_region: str = Field(
        "us-east-1", pattern=r"^[A-Za-z0-9-]{1,64}$", description="Region of the bucket, for signatures."
    )
    s3_access_key_file: Path | None = Field(
        None,
        description="File with the id of the access key. Unset: `AWS_ACCESS_KEY_ID` and "
        "`AWS_SECRET_ACCESS_KEY`, a web identity, or the role of the container or the instance "
        "(docs/originals.md).",
    )
    s3_secret_key_file: Path | None = Field(
        None, description="File with the secret of the access key. The service reloads it when it changes."
    )
    s3_ca_file: Path | None = Field(
        None,
        description="PEM file with certificate authorities for the store's certificate, in addition to those of "
        "the system.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.s3_access_key_file is None) != (self.s3_secret_key_file is None):
            raise ValueError(
                "CAUSEWAY_S3_ACCESS_KEY_FILE and CAUSEWAY_S3_SECRET_KEY_FILE belong together: set both, or neither"
            )
        if self.s3_access_key_file is not None and not self.s3_bucket:
            raise ValueError(
                "CAUSEWAY_S3_ACCESS_KEY_FILE needs CAUSEWAY_S3_BUCKET: set the bucket, or unset both key files"
            )
        return self
