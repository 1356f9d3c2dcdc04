"""``causeway usage``: shows the sums of requests, tokens and costs of all gateways."""

import asyncio
import dataclasses
import math
import time
from typing import Annotated

import typer
from causeway.cli import render, times
from causeway.cli.errors import UsageError
from causeway.cli.options import DEFAULT_DATA_DIR, DataDir, Json, NatsUrl, comma_separated, resolve_nats

GROUPS = ("day", "tenant", "user", "key", "frontend", "model", "route")

EXAMPLES = (
    "causeway usage",
    "causeway usage --tenant north --since 30d --by day,model",
    "causeway usage --since 2026-01-01 --until 2026-02-01 --by tenant --json",
)

Tenant = Annotated[str, typer.Option(metavar="TENANT", help="Only usage of this tenant. Default: all tenants.")]
Since = Annotated[str, typer.Option(metavar="TIME", help="Start: 24h, 7d, or a date such as 2026-01-31 (UTC).")]
Until = Annotated[str, typer.Option(metavar="TIME", help="End, in the same format as the start. Default: now.")]
By = Annotated[
    str,
    typer.Option(
        metavar="COLUMNS", help=f"Group the sums by one or more of {', '.join(GROUPS)}; separate them by commas."
    ),
]


def usage(
    tenant: Tenant = "",
    since: Since = "7d",
    until: Until = "",
    by: By = "tenant,model",
    nats_url: NatsUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    *,
    as_json: Json = False,
) -> None:
    """Show the usage: requests, tokens, bytes and costs.

    The bytes are the sizes of the ingested documents. The command reads the gateways' records from NATS. With
    --json it prints one object per line.
    """
    now = time.time()
    groups = comma_separated(by)
    if unknown := set(groups) - set(GROUPS):
        raise UsageError(
            f"--by does not support {', '.join(sorted(unknown))}; use one or more of {', '.join(GROUPS)}"
        )
    # Imported here, because other commands do not need the client of NATS.
    from causeway.cli import usage_log

    found = asyncio.run(
        usage_log.sums(
            resolve_nats(nats_url, data_dir),
            groups,
            tenant=tenant,
            since=_timestamp("--since", since, now),
            until=_timestamp("--until", until, now) if until else math.inf,
        )
    )
    out = render.console()
    if as_json:
        for group, total in found.items():
            members = dict(zip(groups, group, strict=True))
            render.json_line(out, {**members, **dataclasses.asdict(total)})
        return
    if not found:
        render.line(out, "There is no usage in this period.")
        return
    columns = [name.capitalize() for name in groups]
    rows = [
        (
            *group,
            f"{total.requests:,}",
            f"{total.failed:,}",
            f"{total.input_tokens:,}",
            f"{total.output_tokens:,}",
            f"{total.ingested_bytes:,}",
            ", ".join(f"{cost:,.4f} {currency}".strip() for currency, cost in (total.cost or {}).items()),
        )
        for group, total in found.items()
    ]
    render.table(out, [*columns, "Requests", "Failed", "Tokens in", "Tokens out", "Bytes in", "Cost"], rows)


def _timestamp(option: str, text: str, now: float) -> float:
    """Return the time of an option in seconds since 1970.

    A duration counts back from now. A date without a time means its beginning in UTC.

    Raises:
        UsageError: The text is neither a duration nor a date.
    """
    if (duration := times.duration(text)) is not None:
        return now - duration
    if (at := times.timestamp(text)) is None:
        raise UsageError(f"{option} must have the form 7d, 24h or 2026-01-31, not {text!r}")
    return at
