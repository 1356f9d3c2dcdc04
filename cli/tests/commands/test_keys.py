import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import nats.errors
import nats.js.errors
import pytest
from causeway.cli import key_store, stack_file
from causeway.cli.commands.keys import _expiry
from causeway.cli.errors import CommandError, UsageError
from causeway_testing.servers import free_ports, nats_server
from servicekit import keys
from servicekit.api_keys import ApiKey
from servicekit.key_value import current_entries
from servicekit.nats import connect

Run = Callable[..., Any]


@pytest.fixture
async def run(cli: Callable[..., Any], tmp_path: Path) -> AsyncIterator[Run]:
    """Yield a function that runs ``causeway keys`` with the NATS server of a data directory."""
    async with nats_server(tmp_path / "nats") as url:
        stack_file.write(tmp_path, {"url": "", "nats_url": url})
        yield lambda *arguments: asyncio.to_thread(cli, "keys", *arguments, "--data-dir", tmp_path)


async def stored(tmp_path: Path) -> dict[str, bytes]:
    """Return the stored records of keys."""
    client = await connect(stack_file.read(tmp_path)["nats_url"], "test")
    try:
        bucket = await client.jetstream().key_value(keys.API_KEYS_BUCKET)
        return {entry.key: entry.value or b"" for entry in await current_entries(bucket)}
    finally:
        await client.close()


async def test_a_key_is_shown_once(run: Run, tmp_path: Path) -> None:
    """The output on stdout is only the key. The stored record and the lists do not contain the key."""
    result = await run("create", "--name", "ann")
    assert result.exit_code == 0
    key = result.stdout.strip()
    [(key_id, raw)] = (await stored(tmp_path)).items()
    record = ApiKey.from_json(raw)
    assert record.matches(key)
    assert (record.id, record.name, record.user, record.tenant, record.roles) == (
        key_id,
        "ann",
        "ann",
        "local",
        ("ask",),
    )
    assert key_id in result.stderr
    for output in (raw.decode(), result.stderr, (await run("list")).stdout, (await run("list", "--json")).stdout):
        assert key.split("_", 2)[2] not in output
        assert record.digest not in output or output == raw.decode()


async def test_a_key_with_all_members(run: Run, tmp_path: Path) -> None:
    """The record of a key has the values of all options. --json prints the key with its record."""
    created = json.loads(
        (
            await run(
                *("create", "--name", "page", "--tenant", "north", "--user", "Ann Ä", "--roles", "ask, ingest"),
                *("--oids", "o1,o2", "--groups", "staff", "--profile", "help,staff", "--expires", "90d", "--json"),
            )
        ).stdout
    )
    [raw] = (await stored(tmp_path)).values()
    record = ApiKey.from_json(raw)
    assert record.matches(created.pop("key"))
    assert (record.tenant, record.user, record.roles) == ("north", "Ann Ä", ("ask", "ingest"))
    assert (record.oids, record.groups, record.profiles) == (("o1", "o2"), ("staff",), ("help", "staff"))
    assert record.expires_at is not None
    assert abs(record.expires_at - time.time() - 90 * 86400) < 60
    assert created == {name: value for name, value in json.loads(raw).items() if name != "digest"}
    [listed] = [json.loads(line) for line in (await run("list", "--json")).stdout.splitlines()]
    assert listed == created


async def test_keys_are_listed_and_revoked(run: Run, tmp_path: Path) -> None:
    """`list` shows the oldest key first, for all tenants or one. `revoke` accepts ids and keys."""
    assert (await run("list", "--json")).stdout == ""
    created = {}
    for name, tenant in (("a", "north"), ("b", "south"), ("c", "south")):
        created[name] = json.loads((await run("create", "--name", name, "--tenant", tenant, "--json")).stdout)
    listed = await run("list", "--json")
    assert (listed.exit_code, listed.stderr) == (0, "")
    assert [json.loads(line)["name"] for line in listed.stdout.splitlines()] == ["a", "b", "c"]
    lines = (await run("list", "--tenant", "south")).stdout.splitlines()[1:]
    assert [line.split()[1] for line in lines] == ["b", "c"]
    result = await run("revoke", created["a"]["id"], created["b"]["key"], "--json")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [
        created["a"]["id"],
        created["b"]["id"],
    ]
    assert list(await stored(tmp_path)) == [created["c"]["id"]]
    some = await run("revoke", created["c"]["id"], created["b"]["key"], "0" * 16)
    assert (some.exit_code, some.stdout) == (1, "")
    assert "no API key is revoked, because some do not exist (KEY 2, KEY 3)" in some.stderr
    assert list(await stored(tmp_path)) == [created["c"]["id"]]
    again = await run("revoke", created["a"]["id"])
    assert (again.exit_code, again.stdout) == (1, "")
    assert "this API key does not exist" in again.stderr
    assert created["b"]["key"] not in (await run("revoke", created["b"]["key"])).stderr


@pytest.mark.parametrize("failure", [TimeoutError(), nats.errors.TimeoutError(), nats.js.errors.ServerError()])
async def test_a_failure_after_the_connection(tmp_path: Path, failure: Exception) -> None:
    """If a request fails after the connection, the error does not state that NATS is unreachable."""
    async with nats_server(tmp_path / "nats") as url:
        with pytest.raises(CommandError, match="a request to NATS failed: ") as caught:
            async with key_store.opened(url, 1):
                raise failure
    assert caught.value.exit_code == 1


async def test_a_name_in_any_script(run: Run) -> None:
    """Names and users may contain all characters that are text, for example the ideographic space."""
    result = await run("create", "--name", "\u7530\u4e2d\u3000\u592a\u90ce", "--user", "a\u00a0b", "--json")
    assert (result.exit_code, json.loads(result.stdout)["user"]) == (0, "a\u00a0b")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--roles", "root"),
        ("--roles", "ask,asks"),
        ("--roles", ""),
        ("--tenant", " "),
        ("--tenant", "north\udcff"),
        ("--user", "ann\nbob"),
        ("--groups", "a\udcff"),
        ("--expires", "soon"),
        ("--expires", "2020-01-01"),
        ("--expires", "0d"),
    ],
)
def test_invalid_values_are_refused(cli: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    """Invalid values cause exit code 2."""
    assert cli("keys", "create", "--name", "a", *arguments).exit_code == 2


def test_expiry() -> None:
    """The expiry is a duration from now, a date, or a time."""
    assert _expiry("30m", 1000.0) == 2800
    assert _expiry("12h", 0.0) == 12 * 3600
    assert _expiry("2w", 0.0) == 14 * 86400
    assert _expiry("1970-01-02", 0.0) == 86400
    assert _expiry("1970-01-02T01:00:00+01:00", 0.0) == 86400
    with pytest.raises(UsageError):
        _expiry("90", 0.0)


async def test_no_keys(run: Run) -> None:
    """If there are no keys, `list` says how to create one. With --json it prints nothing."""
    result = await run("list")
    assert result.stdout == "There are no API keys; `causeway keys create --name NAME` creates a key.\n"
    assert "of tenant 'north'" in (await run("list", "--tenant", "north")).stdout
    assert (await run("list", "--json")).stdout == ""


def test_no_broker_answers(cli: Callable[..., Any]) -> None:
    """Without a NATS server, the exit code is 3, and the one-line message does not contain the password."""
    [port] = free_ports(1)
    result = cli("keys", "list", "--nats-url", f"nats://ann:secret@127.0.0.1:{port}")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in result.stderr
    assert "--data-dir" in result.stderr
    assert "secret" not in result.stderr


def test_an_incomplete_certificate(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """If only one of the three variables of a certificate is set, the command exits with code 2."""
    monkeypatch.setenv("CAUSEWAY_TLS_CERT_FILE", "/nowhere/tls.crt")
    result = cli("keys", "list")
    assert result.exit_code == 2
    assert "Also set CAUSEWAY_TLS_KEY_FILE and CAUSEWAY_TLS_CA_FILE" in result.stderr


def test_commands_send_a_key(
    gateway: Any, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All requests have the key of the option or the variable. Without a key, no request has the header."""
    (tmp_path / "a.md").write_text("# A")
    commands = [("status",), ("ask", "When?"), ("ask", "When?", "--json"), ("ingest", "a.md", "--index", "i")]
    for command in commands:
        assert cli(*command, "--url", gateway.url).exit_code == 0
    assert gateway.credentials == {""}
    gateway.credentials.clear()
    for command in commands:
        assert cli(*command, "--url", gateway.url, "--api-key", "cwk_x").exit_code == 0
    assert gateway.credentials == {"Bearer cwk_x"}
    gateway.credentials.clear()
    monkeypatch.setenv("CAUSEWAY_API_KEY", "cwk_y")
    assert cli("status", "--url", gateway.url).exit_code == 0
    assert gateway.credentials == {"Bearer cwk_y"}
