"""Dead letters: jobs that were given up, with the reason."""

import string
from urllib.parse import quote

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from servicekit import keys
from servicekit.errors import Unavailable
from servicekit.nats import GENERATION

from ingest.domain import Failure

_PLAIN = string.punctuation.replace("%", "") + " "
"""Stands in a header as it is; the rest is percent-encoded."""


async def bury(jetstream: JetStreamContext, message: Msg, failure: Failure, generation: int) -> None:
    """Copies a message of the queue to the dead letters, with its headers and the reason.

    Raises:
        Unavailable: The broker does not answer.
    """
    headers = {
        **(message.headers or {}),
        # The job's place in the stream: unlike its id, it is another one when the job is sent again.
        "Nats-Msg-Id": f"{keys.INGEST_STREAM}.{message.metadata.sequence.stream}",
        "Causeway-Job-Id": (message.headers or {}).get("Causeway-Job-Id")
        or (message.headers or {}).get("Nats-Msg-Id", ""),
        GENERATION: str(generation),
        "Causeway-Reason": failure.reason,
        "Causeway-Message": quote(" ".join(failure.message.split()), safe=_PLAIN),
        "Causeway-Attempts": str(message.metadata.num_delivered),
    }
    try:
        await jetstream.publish(keys.ingest_dead_subject_of(message.subject), message.data, headers=headers)
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise Unavailable("The message broker does not answer.") from error
