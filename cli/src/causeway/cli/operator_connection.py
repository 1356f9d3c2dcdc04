"""The operator's connection to NATS, with the certificates of the environment and the errors of commands."""

import contextlib
from collections.abc import AsyncIterator

import nats.errors
from causeway.cli.errors import CommandError, Unreachable, UsageError
from nats.aio.client import Client
from pydantic import ValidationError
from servicekit.errors import CausewayError
from servicekit.logs import logging_disabled
from servicekit.nats import connect
from servicekit.settings import ServiceSettings
from servicekit.tls import Certificates


@contextlib.asynccontextmanager
async def operator_connection(url: str) -> AsyncIterator[Client]:
    """Connect to NATS as the operator; close the connection at the end.

    Raises:
        Unreachable: The connection failed: the server does not answer, or refuses the client.
        UsageError: The certificates of the environment are invalid.
        CommandError: A request to the server failed within the block.
    """
    certificates = certificates_from_environment()
    try:
        with logging_disabled():
            client = await connect(url, "operator", certificates=certificates)
    except (OSError, nats.errors.Error) as error:
        server = url.rpartition("@")[2]  # without the password
        raise Unreachable(
            f"NATS does not answer at {server} ({type(error).__name__}). `causeway up` starts a stack. Use "
            "--data-dir for the directory of a running stack, or --nats-url for another platform"
        ) from error
    try:
        yield client
    except (TimeoutError, nats.errors.Error, CausewayError) as error:
        raise CommandError(f"a request to NATS failed: {str(error) or type(error).__name__}") from error
    finally:
        await client.close()


def certificates_from_environment() -> Certificates | None:
    """Return the certificates of the variables ``CAUSEWAY_TLS_…``; None if these are not set.

    Raises:
        UsageError: The variables or the files are invalid.
    """
    try:
        return Certificates.of(ServiceSettings())
    except (CausewayError, ValidationError) as error:
        raise UsageError(error.message if isinstance(error, CausewayError) else str(error)) from error
