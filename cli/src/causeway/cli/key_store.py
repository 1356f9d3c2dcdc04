"""The store of the API keys in NATS. Only the operator can change it; gateways read it."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from causeway.cli.errors import CommandError
from causeway.cli.operator_connection import operator_connection
from nats.js.kv import KeyValue
from servicekit import key_value
from servicekit.api_keys import ApiKey, id_of
from servicekit.buckets import api_keys_bucket


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


@contextlib.asynccontextmanager
async def opened(url: str, replicas: int) -> AsyncIterator[KeyStore]:
    """Connect to the keys at a NATS server.

    Args:
        url: The URL of the server.
        replicas: The number of replicas in NATS; used only when the store is created.

    Raises:
        Unreachable, UsageError, CommandError: See `operator_connection`.
    """
    async with operator_connection(url) as client:
        yield KeyStore(await api_keys_bucket(client, replicas=replicas))
