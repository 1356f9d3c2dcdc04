"""The API keys where the platform keeps them: in NATS, which the operator reaches and nobody else does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import nats.errors
import nats.js.errors
from causeway.cli.errors import CommandError, Unreachable, UsageError
from nats.js.kv import KeyValue
from pydantic import ValidationError
from servicekit import key_value
from servicekit.api_keys import ApiKey, id_of
from servicekit.errors import CausewayError
from servicekit.logs import nothing_is_logged
from servicekit.nats import api_keys_bucket, connect
from servicekit.settings import ServiceSettings
from servicekit.tls import Certificates

_SECONDS = 10.0


class KeyStore:
    """Reads and writes the keys' records.

    Args:
        bucket: Where they are.
    """

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket

    async def add(self, key: ApiKey) -> None:
        """Keeps a new key: gateways take it within seconds."""
        await self._bucket.create(key.id, key.to_json())

    async def all(self) -> list[ApiKey]:
        """Every key, the oldest first; what cannot be read is left out."""
        found = []
        for entry in await key_value.stored(self._bucket):
            with contextlib.suppress(ValueError):
                found.append(ApiKey.from_json(entry.value or b""))
        return sorted(found, key=lambda key: (key.created_at, key.id))

    async def revoke(self, said: str) -> ApiKey:
        """Forgets a key: gateways refuse it within seconds.

        Args:
            said: Its id, or the key itself.

        Raises:
            CommandError: There is none.
        """
        wanted = id_of(said) or said
        for key in await self.all():
            if key.id == wanted:
                await self._bucket.purge(key.id)
                return key
        raise CommandError("there is no such API key; `causeway keys list` shows the ids")


def certificates_of_the_environment() -> Certificates | None:
    """Those of the variables that the services have, too (``CAUSEWAY_TLS_…``); None where there are none.

    Raises:
        UsageError: They are wrong.
    """
    try:
        return Certificates.of(ServiceSettings())
    except (CausewayError, ValidationError) as error:
        raise UsageError(error.message if isinstance(error, CausewayError) else str(error)) from error


@contextlib.asynccontextmanager
async def opened(url: str, replicas: int, certificates: Certificates | None = None) -> AsyncIterator[KeyStore]:
    """The keys at a NATS server.

    Args:
        url: Of the server.
        replicas: Copies of everything stored, where nothing is there yet.
        certificates: What a server that asks for one is shown; None: nothing.

    Raises:
        Unreachable: Nobody answers there, or not in time.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            with nothing_is_logged():
                client = await connect(url, "causeway-keys", certificates=certificates)
            try:
                yield KeyStore(await api_keys_bucket(client, replicas=replicas))
            finally:
                await client.close()
    except (OSError, TimeoutError, nats.errors.Error, nats.js.errors.Error) as error:
        raise no_nats(url, error) from error


def no_nats(url: str, error: Exception) -> Unreachable:
    """What is said where NATS does not answer."""
    server = url.rpartition("@")[2]  # without the password
    return Unreachable(
        f"NATS does not answer at {server} ({type(error).__name__}); `causeway up` starts a stack, "
        "--data-dir names the directory of one that runs, --nats-url another platform's NATS"
    )
