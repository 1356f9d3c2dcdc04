"""Let detectors judge the error text of a model server, as they judge an answer, before a client receives it."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, UpstreamRejected
from servicekit.principal import Principal
from servicekit.tasks import cancel_and_wait

from gateway.answering.choice_members import Document
from gateway.answering.json_texts import repeats_names
from gateway.domain import Action, Detector
from gateway.ports.answering import Guardrails, Watch

WITHHELD = "The model server refused the request. The guardrails withhold its message."

_log = structlog.get_logger(__name__)


async def cleared(
    error: UpstreamRejected,
    guardrails: Guardrails,
    principal: Principal,
    detectors: Sequence[Detector],
    deadline: Deadline,
) -> UpstreamRejected:
    """Return the error with a text that clients may read.

    The gateway withholds the text if the detectors block it, fail, or cannot judge it. Without a detector that
    redacts or blocks, the error does not change.
    """
    if not error.body or all(detector.action is Action.REPORT for detector in detectors):
        return error
    body, plain = _members(error.body)
    document = Document({"error": error.body} if plain else body, "")
    try:
        async with guardrails.watch(principal, detectors, deadline) as watch:
            clear = await _judged(watch, document)
    except CausewayError as failed:
        _log.warning("the model server's refusal was not judged", error=failed.message)
        clear = False
    if not clear or document.left_out:
        return _with_body(error, msgspec.json.encode({"error": {"message": WITHHELD, "type": "withheld"}}).decode())
    if not document.changed and (plain or not repeats_names(error.body)):
        return error
    members = document.members()
    return _with_body(error, members["error"] if plain else msgspec.json.encode(members).decode())


async def _judged(watch: Watch, document: Document) -> bool:
    """Return whether the detectors have judged the whole document and blocked no part of it."""
    feeding = asyncio.ensure_future(_feed(watch, document))
    try:
        async with contextlib.aclosing(watch.clearances()) as clearances:
            async for clearance in clearances:
                if clearance.blocked:
                    return False
                document.take(clearance.choice, clearance)
    finally:
        await cancel_and_wait(feeding)
    return document.fully_judged


async def _feed(watch: Watch, document: Document) -> None:
    for number, text in enumerate(document.texts):
        for clearance in await watch.feed(number, text, last=True, auxiliary=True):
            if not clearance.blocked:  # a blocked text is not recorded, so `document.fully_judged` remains false
                document.take(clearance.choice, clearance)
    await watch.end()


def _members(body: str) -> tuple[dict[str, Any], bool]:
    """Return the members of a body, and whether the body is plain text instead of an object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any]), False
    except (ValueError, RecursionError):
        return {}, True


def _with_body(error: UpstreamRejected, body: str) -> UpstreamRejected:
    refusal = UpstreamRejected(error.message, status=error.status, body=body, retry_after=error.retry_after)
    refusal.field, refusal.resource = error.field, error.resource
    return refusal
