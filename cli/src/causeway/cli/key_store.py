"""The store of the API keys in NATS, which only the operator can access."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import nats.errors
import nats.js.errors
from causeway.cli.errors import CommandError, Unreachable, UsageError
from nats.js.kv import KeyValue
from pydantic import ValidationError
from servicekit import key_value
from servicekit.api_keys import ApiKey, id_of
from servicekit.errors import CausewayError
from servicekit.logs import logging_disabled
from servicekit.nats import api_keys_bucket, connect
from servicekit.settings import ServiceSettings
from servicekit.tls import Certificates

_TIMEOUT_SECONDS = 10.0


class KeyStore:
    """Reads and writes the records of the API keys.

    Args:
        bucket: The bucket of the keys.
    """

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket

    async def add(self, key: ApiKey) -> None:
        """Store a new key; gateways accept it within seconds."""
        await self._bucket.create(key.id, key.to_json())

    async def all(self) -> list[ApiKey]:
        """Return every key, the oldest first; invalid records are omitted."""
        found = []
        for entry in await key_value.current_entries(self._bucket):
            with contextlib.suppress(ValueError):
                found.append(ApiKey.from_json(entry.value or b""))
        return sorted(found, key=lambda key: (key.created_at, key.id))

    async def revoke(self, keys_or_ids: Sequence[str]) -> list[ApiKey]:
        """Delete keys and return their records; gateways refuse the keys within seconds.

        Args:
            keys_or_ids: The ids of the keys, or the keys themselves.

        Raises:
            CommandError: One of the keys does not exist. The method has deleted no key.
        """
        known = {key.id: key for key in await self.all()}
        ids = [id_of(key_or_id) or key_or_id for key_or_id in keys_or_ids]
        if unknown := [f"KEY {position}" for position, key_id in enumerate(ids, 1) if key_id not in known]:
            # The message has positions, because an invalid argument may contain the secret of a key.
            reason = "this API key does not exist"
            if len(ids) > 1:
                reason = f"no API key is revoked, because some do not exist ({', '.join(unknown)})"
            raise CommandError(f"{reason}; `causeway keys list` shows the ids")
        revoked = [known[key_id] for key_id in dict.fromkeys(ids)]
        for key in revoked:
            await self._bucket.purge(key.id)
        return revoked


def certificates_from_environment() -> Certificates | None:
    """Return the certificates of the variables ``CAUSEWAY_TLS_…``; None if these are not set.

    Raises:
        UsageError: The variables or the files are invalid.
    """
    try:
        return Certificates.of(ServiceSettings())
    except (CausewayError, ValidationError) as error:
        raise UsageError(error.message if isinstance(error, CausewayError) else str(error)) from error


@contextlib.asynccontextmanager
async def opened(url: str, replicas: int, certificates: Certificates | None = None) -> AsyncIterator[KeyStore]:
    """Connect to the keys at a NATS server.

    Args:
        url: The URL of the server.
        replicas: The number of replicas in NATS; used only when the store is created.
        certificates: For a server that requires a client certificate; None: no TLS.

    Raises:
        Unreachable: The server does not answer in time.
        CommandError: A request to the server failed within the block.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            with logging_disabled():
                client = await connect(url, "causeway-keys", certificates=certificates)
    except (OSError, TimeoutError, nats.errors.Error) as error:
        raise nats_unreachable(url, error) from error
    try:
        yield KeyStore(await api_keys_bucket(client, replicas=replicas))
    except (TimeoutError, nats.errors.Error, nats.js.errors.Error) as error:
        raise CommandError(
            f"the store of the API keys in NATS failed: {str(error) or type(error).__name__}"
        ) from error
    finally:
        await client.close()


def nats_unreachable(url: str, error: Exception) -> Unreachable:
    """Return the error for a NATS server that does not answer."""
    server = url.rpartition("@")[2]  # without the password
    return Unreachable(
        f"NATS does not answer at {server} ({type(error).__name__}). `causeway up` starts a stack. Use --data-dir "
        "for the directory of a running stack, or --nats-url for another platform"
    )
