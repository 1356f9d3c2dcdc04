"""``causeway keys``: creates, lists and revokes API keys in the platform's store."""

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from causeway.cli import render, times
from causeway.cli.errors import UsageError
from causeway.cli.options import DEFAULT_DATA_DIR, DataDir, Json, NatsUrl, comma_separated, resolve_nats
from servicekit import api_keys
from servicekit.api_keys import ApiKey
from servicekit.characters import has_controls
from servicekit.principal import ROLES

if TYPE_CHECKING:
    from causeway.cli.key_store import KeyStore

T = TypeVar("T")

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
        help="Number of replicas in NATS; used only if the store of the keys does not exist yet.",
        hidden=True,
    ),
]
Name = Annotated[
    str,
    typer.Option(
        "--name", metavar="NAME", help="The name of the key in lists, and in `keys` of a front end profile."
    ),
]
Tenant = Annotated[str, typer.Option(metavar="TENANT", help="The tenant of the key.")]
User = Annotated[
    str,
    typer.Option(
        metavar="USER",
        help="The user who owns the histories and uploads made with the key. Default: the key's name.",
    ),
]
Roles = Annotated[
    str, typer.Option(metavar="ROLES", help=f"One or more of {','.join(ROLES)}; admin includes the others.")
]
Oids = Annotated[
    str,
    typer.Option(metavar="IDS", help="Ids to compare with the access lists of documents. Default: the user."),
]
Groups = Annotated[
    str, typer.Option(metavar="GROUPS", help="Groups to compare with the access lists of documents.")
]
Profile = Annotated[
    str, typer.Option(metavar="PROFILES", help="Front end profiles that accept the key. Default: all.")
]
Expires = Annotated[
    str, typer.Option(metavar="TIME", help="Expiry: 90d, 12h, or a date such as 2027-01-31. Default: never.")
]
Ids = Annotated[list[str], typer.Argument(metavar="KEY", help="Ids of keys, or the keys themselves.")]


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
    """Create an API key and show it once.

    The platform stores only the hash of the key. Separate roles, oids, groups and profiles by commas. Without
    --json the command writes only the key to standard output, and its description to standard error.
    """
    if not name.strip() or not tenant.strip():
        raise UsageError("--name and --tenant must not be empty")
    values = {"name": name, "tenant": tenant, "user": user, "oids": oids, "groups": groups, "profile": profile}
    for option, value in values.items():
        if has_controls(value):
            raise UsageError(f"--{option} must be text without control characters, not {value!a}")
    role_names = comma_separated(roles)
    if not role_names:
        raise UsageError(f"--roles must name one or more of {', '.join(ROLES)}")
    if unknown := set(role_names) - set(ROLES):
        raise UsageError(f"unknown role {', '.join(sorted(unknown))}; use one or more of {', '.join(ROLES)}")
    key, record = api_keys.create(
        name,
        tenant,
        user=user,
        oids=comma_separated(oids),
        groups=comma_separated(groups),
        roles=role_names,
        profiles=comma_separated(profile),
        expires_at=_expiry(expires, time.time()) if expires else None,
    )
    _run_with_store(nats_url, data_dir, replicas, lambda store: store.add(record))
    out, err = render.console(), render.console(stderr=True)
    if as_json:
        render.json_line(out, {"key": key, **_as_object(record)})
        return
    render.line(
        err, f"API key {record.id} of {record.user!r}, tenant {record.tenant!r}, roles {', '.join(role_names)}."
    )
    render.line(err, "The key is shown only once:", "bold")
    out.file.write(key + "\n")


def list_keys(
    tenant: Annotated[
        str, typer.Option(metavar="TENANT", help="Only keys of this tenant. Default: all tenants.")
    ] = "",
    nats_url: NatsUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    replicas: Replicas = 1,
    *,
    as_json: Json = False,
) -> None:
    """List the API keys, without their secrets.

    With --json the command prints one object per key.
    """
    found = _run_with_store(nats_url, data_dir, replicas, lambda store: store.all())
    found = [key for key in found if not tenant or key.tenant == tenant]
    out = render.console()
    if as_json:
        for key in found:
            render.json_line(out, _as_object(key))
        return
    if not found:
        suffix = f" of tenant {tenant!r}" if tenant else ""
        render.line(out, f"There are no API keys{suffix}; `causeway keys create --name NAME` creates a key.")
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
    render.table(out, ("Id", "Name", "Tenant", "User", "Roles", "Profiles", "Created", "Expires"), rows)


def revoke(
    ids: Ids,
    nats_url: NatsUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    replicas: Replicas = 1,
    *,
    as_json: Json = False,
) -> None:
    """Revoke API keys irrevocably.

    All gateways refuse the keys within seconds. If one of the keys does not exist, the command revokes none.
    """
    out = render.console()
    for key in _run_with_store(nats_url, data_dir, replicas, lambda store: store.revoke(ids)):
        if as_json:
            render.json_line(out, {"id": key.id, "revoked": True})
        else:
            render.line(out, f"{key.id} ({key.name}) is revoked.")


def _run_with_store(
    nats_url: str | None, data_dir: Path, replicas: int, function: "Callable[[KeyStore], Awaitable[T]]"
) -> T:
    # Imported here, because other commands do not need the client of NATS.
    from causeway.cli import key_store

    async def run() -> T:
        async with key_store.opened(resolve_nats(nats_url, data_dir), replicas) as store:
            return await function(store)

    return asyncio.run(run())


def _expiry(text: str, now: float) -> float:
    """Return the time of expiry in seconds since 1970.

    A duration counts from now. A date without a time means its beginning in UTC.

    Raises:
        UsageError: The text is neither a duration nor a date, or the date is in the past.
    """
    if (duration := times.duration(text)) is not None:
        return now + duration
    if (end := times.timestamp(text)) is None:
        raise UsageError(f"--expires must have the form 90d, 12h or 2027-01-31, not {text!r}")
    if end <= now:
        raise UsageError(f"--expires {text} is in the past")
    return end


def _date(seconds: float | None) -> str:
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _as_object(key: ApiKey) -> dict[str, object]:
    """Return a key's record as JSON data, without the hash."""
    return {name: value for name, value in dataclasses.asdict(key).items() if name != "digest"}
