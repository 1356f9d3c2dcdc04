"""``causeway keys``: API keys, made, listed and revoked where the platform keeps them."""

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from causeway.cli import moments, render
from causeway.cli.errors import UsageError
from causeway.cli.options import DEFAULT_DATA_DIR, DataDir, Json, NatsUrl, resolve_nats
from servicekit import api_keys
from servicekit.api_keys import ApiKey
from servicekit.principal import ROLES

if TYPE_CHECKING:
    from causeway.cli.key_store import KeyStore

EXAMPLES = (
    "causeway keys create --name ann --roles ask",
    "causeway keys create --name loader --roles ingest --tenant north --expires 90d",
    "causeway keys create --name help-page --profile help --json | jq -r .key",
    "causeway keys list --tenant north",
    "causeway keys revoke 0f3c5a7d9e1b2c4d",
)

Replicas = Annotated[
    int,
    typer.Option(
        envvar="CAUSEWAY_NATS_REPLICAS",
        min=1,
        max=5,
        help="Copies in NATS, where the first key is made.",
        hidden=True,
    ),
]
Name = Annotated[str, typer.Option("--name", help="What lists and a profile's `keys` call it.")]
Tenant = Annotated[str, typer.Option(help="Whose documents it is for.")]
User = Annotated[
    str, typer.Option(help="On whose behalf it asks: whose history and uploads it sees. Default: its name.")
]
Roles = Annotated[str, typer.Option(help=f"Some of {','.join(ROLES)}; admin includes the others.")]
Oids = Annotated[str, typer.Option(help="Ids that documents' access lists name. Default: the user.")]
Groups = Annotated[str, typer.Option(help="Groups that documents' access lists name.")]
Profile = Annotated[str, typer.Option(help="Front end profiles that it may be used on. Default: all.")]
Expires = Annotated[str, typer.Option(help="When it ends: 90d, 12h, or a date as 2027-01-31. Default: never.")]
Ids = Annotated[list[str], typer.Argument(help="Ids, or keys themselves.")]


def create(
    name: Name,
    tenant: Tenant = "local",
    user: User = "",
    roles: Roles = "ask",
    oids: Oids = "",
    groups: Groups = "",
    profile: Profile = "",
    expires: Expires = "",
    nats_url: NatsUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    replicas: Replicas = 1,
    *,
    as_json: Json = False,
) -> None:
    """Make an API key, which is shown this once.

    The platform keeps its hash alone. Lists (roles, oids, groups, profiles) are separated by commas. Without --json
    the key stands alone on the standard output, what is said of it on the standard error.
    """
    if not name.strip() or not tenant.strip():
        raise UsageError("a key needs a name and a tenant")
    wanted = _list(roles)
    if wrong := set(wanted) - set(ROLES):
        raise UsageError(f"there is no role {', '.join(sorted(wrong))}; roles are {', '.join(ROLES)}")
    key, record = api_keys.make(
        name,
        tenant,
        user=user,
        oids=_list(oids),
        groups=_list(groups),
        roles=wanted,
        profiles=_list(profile),
        expires_at=_end(expires, time.time()) if expires else None,
    )
    asyncio.run(_add(resolve_nats(nats_url, data_dir), replicas, record))
    out, err = render.console(), render.console(stderr=True)
    if as_json:
        out.file.write(json.dumps({"key": key, **_shown(record)}, ensure_ascii=False) + "\n")
        return
    render.line(
        err, f"API key {record.id} of {record.user!r}, tenant {record.tenant!r}, roles {', '.join(wanted)}."
    )
    render.line(err, "It is shown this once:", "bold")
    out.file.write(key + "\n")


def list_keys(
    tenant: Annotated[str, typer.Option(help="Only this one's.")] = "",
    nats_url: NatsUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    replicas: Replicas = 1,
    *,
    as_json: Json = False,
) -> None:
    """List the API keys, without their secrets. With --json one object a key."""
    found = asyncio.run(_all(resolve_nats(nats_url, data_dir), replicas))
    found = [key for key in found if not tenant or key.tenant == tenant]
    out = render.console()
    if as_json:
        for key in found:
            out.file.write(json.dumps(_shown(key), ensure_ascii=False) + "\n")
        return
    if not found:
        of = f" of tenant {tenant!r}" if tenant else ""
        render.line(out, f"There is no API key{of}; `causeway keys create --name NAME` makes one.")
        return
    now = time.time()
    rows = [
        (
            key.id,
            key.name,
            key.tenant,
            key.user,
            ",".join(key.roles),
            ",".join(key.profiles) or "all",
            _date(key.created_at),
            ("expired " if key.expired(now) else "") + _date(key.expires_at),
        )
        for key in found
    ]
    render.table(out, ("Id", "Name", "Tenant", "User", "Roles", "Profiles", "Made", "Ends"), rows)


def revoke(
    ids: Ids,
    nats_url: NatsUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    replicas: Replicas = 1,
    *,
    as_json: Json = False,
) -> None:
    """Revoke API keys for good, within seconds at every gateway."""
    url = resolve_nats(nats_url, data_dir)
    out = render.console()
    for key in asyncio.run(_revoke(url, replicas, ids)):
        if as_json:
            out.file.write(json.dumps({"id": key.id, "revoked": True}) + "\n")
        else:
            render.line(out, f"{key.id} ({key.name}) is revoked.")


@contextlib.asynccontextmanager
async def _store(url: str, replicas: int) -> "AsyncIterator[KeyStore]":
    # With it comes the client of NATS, which the other commands do not need.
    from causeway.cli import key_store

    async with key_store.opened(url, replicas, key_store.certificates_of_the_environment()) as store:
        yield store


async def _add(url: str, replicas: int, record: ApiKey) -> None:
    async with _store(url, replicas) as store:
        await store.add(record)


async def _all(url: str, replicas: int) -> list[ApiKey]:
    async with _store(url, replicas) as store:
        return await store.all()


async def _revoke(url: str, replicas: int, ids: list[str]) -> list[ApiKey]:
    async with _store(url, replicas) as store:
        return [await store.revoke(each) for each in ids]


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _end(text: str, now: float) -> float:
    """Seconds since 1970 of a duration from now, or of a date, at whose beginning (UTC) the key ends.

    Raises:
        UsageError: It is neither, or over already.
    """
    if (duration := moments.duration(text)) is not None:
        return now + duration
    if (end := moments.date(text)) is None:
        raise UsageError(f"--expires is like 90d, 12h or 2027-01-31, not {text!r}")
    if end <= now:
        raise UsageError(f"--expires {text} is over already")
    return end


def _date(seconds: float | None) -> str:
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _shown(key: ApiKey) -> dict[str, object]:
    """A key's record for machines, less the digest."""
    return {name: value for name, value in dataclasses.asdict(key).items() if name != "digest"}
