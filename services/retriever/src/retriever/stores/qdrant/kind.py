"""A Qdrant server as a kind of store."""

from pathlib import Path

import structlog
from pydantic import Field, SecretStr
from servicekit.errors import InvalidRequest
from servicekit.secret_file import SecretFile, check_sendable

from retriever.concurrency.scheduler import Scheduler
from retriever.ports.store import Store
from retriever.stores.kind import StoreKind, StoreSettings

_log = structlog.get_logger(__name__)


class QdrantSettings(StoreSettings):
    """Settings of a Qdrant server."""

    qdrant_url: str | None = Field(
        None,
        description="URL of a Qdrant server with its gRPC port, `http://host:6334` (docs/qdrant.md); none: the "
        "embedded engine.",
    )
    qdrant_hosts: str = Field(
        "",
        description="Hosts of all nodes of a cluster, separated by commas, in place of the URL's host. If one "
        "node fails, the retriever uses another node. A host may have a port.",
    )
    qdrant_api_key: SecretStr | None = Field(None, description="The server's API key.")
    qdrant_api_key_file: Path | None = Field(
        None, description="File with the key, for example of a mounted Secret; read again when it changes."
    )
    qdrant_ca_file: Path | None = Field(
        None,
        description="PEM file with the CA certificates that verify an https server's certificate; none: the CA "
        "certificates that gRPC contains, not those of the system.",
    )
    qdrant_prefix: str = Field(
        "causeway",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="Prefix of the names of collections, so that several installations can share a server.",
    )
    qdrant_timeout: float = Field(
        15.0,
        gt=0,
        description="Maximum seconds for one call to the server. While one node of a cluster hangs, the other "
        "nodes need about 10 seconds to exclude it from writes.",
    )
    qdrant_try_timeout: float = Field(
        1.0,
        gt=0,
        description="Seconds after which a read is repeated at another node of the cluster. A write is repeated "
        "only if its node does not answer version requests either.",
    )
    qdrant_shards: int = Field(0, ge=0, description="Shards of a new collection; 0: the server's default.")
    qdrant_replicas: int = Field(1, ge=1, description="Copies of each shard of a new collection.")
    qdrant_write_consistency: int = Field(
        1, ge=1, description="Copies that must store a write before it is acknowledged."
    )
    qdrant_shared: bool = Field(
        False,
        description="Store all new indexes of an embedding model in one collection, for installations with very "
        "many indexes (docs/qdrant.md); otherwise, each index has its own collection.",
    )


async def _open(settings: QdrantSettings, _scheduler: Scheduler) -> Store:
    # The import of the client is slow, and the embedded engine does not need it.
    from retriever.stores.qdrant.aliases import SPACE
    from retriever.stores.qdrant.connection import Connection
    from retriever.stores.qdrant.layout import Layout, needed_write_consistency
    from retriever.stores.qdrant.store import QdrantStore

    assert settings.qdrant_url is not None
    layout = Layout(
        settings.qdrant_prefix,
        settings.qdrant_shards,
        settings.qdrant_replicas,
        settings.qdrant_write_consistency,
        settings.vector_storage,
        settings.qdrant_shared,
    )
    if layout.prefix.endswith(SPACE):
        raise InvalidRequest(
            f"CAUSEWAY_QDRANT_PREFIX must not end with {SPACE!r}, because the shared collections of another "
            "installation may have the same names. Choose another prefix."
        )
    minimum = needed_write_consistency(layout.replicas)
    if layout.write_consistency < minimum:
        raise InvalidRequest(
            f"CAUSEWAY_QDRANT_WRITE_CONSISTENCY is {layout.write_consistency}. With {layout.replicas} copies, set "
            f"it to {minimum} or more, so that a read of more than half of the copies sees every write."
        )
    hosts = [host.strip() for host in settings.qdrant_hosts.split(",") if host.strip()]
    if layout.replicas > 1 and len(hosts) < 2:
        _log.warning(
            "CAUSEWAY_QDRANT_HOSTS does not name the cluster's nodes: searches wait for a node that hangs, and "
            "the copies of the nodes are not compared",
            copies=layout.replicas,
        )
    connection = Connection.from_url(
        settings.qdrant_url,
        _key(settings),
        settings.qdrant_timeout,
        settings.qdrant_ca_file,
        hosts,
        settings.qdrant_try_timeout,
    )
    return await QdrantStore.open(connection, layout)


def _key(settings: QdrantSettings) -> SecretStr | None:
    if settings.qdrant_api_key_file is None:
        return settings.qdrant_api_key
    if settings.qdrant_api_key is not None:
        raise InvalidRequest("CAUSEWAY_QDRANT_API_KEY and CAUSEWAY_QDRANT_API_KEY_FILE are both set: set only one.")
    try:
        return SecretFile(settings.qdrant_api_key_file, check_sendable)
    except (OSError, ValueError) as error:
        # The text of a UnicodeDecodeError would contain a part of the key.
        reason = type(error).__name__ if isinstance(error, UnicodeError) else str(error)
        raise InvalidRequest(f"CAUSEWAY_QDRANT_API_KEY_FILE cannot be used: {reason}.") from error


QDRANT = StoreKind(
    "qdrant", QdrantSettings, lambda settings: bool(settings.qdrant_url), _open, has_vector_storage=True
)
