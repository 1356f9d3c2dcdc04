"""The one line that a request leaves in the log: what it was, how it went, what it took; never what it said."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from gateway.accounting import Account


def fields(account: Account, method: str, path: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The members of the line; those without a value are left out (docs/observability.md).

    Args:
        account: Of the request that has ended.
        method: Of HTTP.
        path: As it was asked for.
        state: The ASGI scope's ``state``; ``log`` holds what the layers and routes add.
    """
    said = {
        "dialect": state.get("dialect"),
        "user": "" if account.key else pseudonym(account.tenant, account.user),
        "model": account.model,
        "input_tokens": account.input_tokens,
        "output_tokens": account.output_tokens,
        "first_token_ms": next((s.duration_ms for s in account.steps if s.name == "first token"), None),
        "detections": _detections(account),
        "request_bytes": state.get("request_bytes"),
        "nodes_kept": len(state["sources"]) if "sources" in state else None,
    }
    return {
        "method": method,
        "path": path,
        "route": account.route,
        "status": account.status,
        "duration_ms": round(account.seconds * 1000, 1),
        # Said here, because the request's span has ended.
        "trace_id": account.trace_id,
        "tenant": account.tenant,
        **{name: value for name, value in said.items() if value},
        **state.get("log", {}),
    }


def pseudonym(tenant: str, user: str) -> str:
    """Sixteen hex digits that stand for a user: the same in every line, without the name; empty for nobody."""
    return hashlib.blake2b(f"{tenant}/{user}".encode(), digest_size=8).hexdigest() if user else ""


def _detections(account: Account) -> dict[str, int]:
    """How often detectors came to each verdict, and how often they failed."""
    counts: Counter[str] = Counter()
    for detections in account.timeline.detections:
        counts.update(finding.action.name.lower() for finding in detections.findings)
        counts["error"] += len(detections.failures)
    return dict(+counts)
