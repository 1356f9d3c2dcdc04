import dataclasses
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servicekit import api_keys, keys
from servicekit.api_keys import ApiKey
from servicekit.errors import InvalidRequest
from servicekit.principal import ROLES, Principal

names = st.lists(st.text(min_size=1), max_size=3).map(tuple)
records = st.builds(
    ApiKey,
    id=st.text(min_size=1),
    digest=st.text("0123456789abcdef", min_size=64, max_size=64),
    name=st.text(),
    tenant=st.text(min_size=1),
    user=st.text(),
    oids=names,
    groups=names,
    roles=st.lists(st.sampled_from(ROLES), max_size=3).map(tuple),
    profiles=names,
    created_at=st.floats(0, 1e10),
    expires_at=st.none() | st.floats(0, 1e10),
)


def test_a_key_matches_only_its_record() -> None:
    """Each key is unique. The record contains neither the key nor its secret."""
    key, record = api_keys.create("ann", "north", roles=("ask",))
    other, _ = api_keys.create("ann", "north", roles=("ask",))
    assert key != other
    assert api_keys.id_of(key) == record.id
    assert record.matches(key)
    assert not record.matches(other)
    secret = key.removeprefix(f"{api_keys.PREFIX}{record.id}_")
    assert len(secret) == 43  # 256 bits in base64url
    assert secret not in record.to_json().decode()


def test_every_character_of_a_key_counts() -> None:
    """A key that differs in any character does not match."""
    key, record = api_keys.create("ann", "north")
    for at, character in enumerate(key):
        assert not record.matches(key[:at] + ("x" if character != "x" else "y") + key[at + 1 :])
    assert not record.matches(key + "x")
    assert not record.matches("")


@pytest.mark.parametrize(
    "text",
    ["", "cwk_", "cwk_0123456789abcdef_", "sk-abc", "cwk_0123456789abcdeg_" + "a" * 43, "a.b.c", "\n", "ä" * 64],
)
def test_an_invalid_key_has_no_id(text: str) -> None:
    """Tokens, other platforms' keys and parts of keys have no id."""
    assert api_keys.id_of(text) is None
    api_keys.compare_with_dummy(text)


@given(records)
def test_a_record_is_read_as_it_was_written(record: ApiKey) -> None:
    """A record is read unchanged, for any names in it."""
    assert ApiKey.from_json(record.to_json()) == record


def test_members_of_newer_versions_are_ignored() -> None:
    """Unknown members are ignored, so that an older gateway reads the records of a newer command."""
    _, record = api_keys.create("ann", "north")
    assert ApiKey.from_json(json.dumps({**json.loads(record.to_json()), "colour": "red"}).encode()) == record


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": ""},
        {"tenant": None},
        {"roles": ["root"]},
        {"oids": [1]},
        {"oids": 5},
        {"profiles": None},
        {"roles": [["ask"]]},
        {"digest": None},
        {"digest": "é" * 64},
        {"expires_at": "soon"},
        {"user": 7},
    ],
)
def test_an_invalid_record_is_refused(change: dict[str, object]) -> None:
    """An invalid record is refused, so that it never grants more than was meant."""
    _, record = api_keys.create("ann", "north")
    with pytest.raises(ValueError, match="not a record"):
        ApiKey.from_json(json.dumps({**dataclasses.asdict(record), **change}).encode())


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000])
def test_a_record_must_be_a_json_object(raw: bytes) -> None:
    """JSON that is not an object is refused."""
    with pytest.raises(ValueError, match="not a record"):
        ApiKey.from_json(raw)


def test_the_principal_of_a_key_without_a_user_has_its_name() -> None:
    """Without a user, the key's name is the user. Without ids, access lists contain this name."""
    _, plain = api_keys.create("ann", "north", roles=("ask",), groups=("staff",))
    assert plain.principal() == Principal("north", "ann", ("ann",), ("staff",), ("ask",))
    _, full = api_keys.create("page", "north", user="ann", oids=("o1", "o2"))
    assert full.principal() == Principal("north", "ann", ("o1", "o2"))


@pytest.mark.parametrize(("expires_at", "expired"), [(None, False), (99.9, True), (100.0, True), (100.1, False)])
def test_a_key_expires_at_its_time(expires_at: float | None, expired: bool) -> None:
    """A key is expired from its time on."""
    _, record = api_keys.create("ann", "north", expires_at=expires_at)
    assert record.expired(100.0) == expired


def test_no_key_has_a_user_of_an_issuer() -> None:
    """A key with an issuer's user cannot be created, and a record of such a key is refused."""
    with pytest.raises(InvalidRequest, match="identity provider"):
        api_keys.create("k", "north", user=keys.user_of("https://a.example", "ann"))
    _, record = api_keys.create("ann", "north")
    forged = replace(record, user=keys.user_of("https://a.example", "ann"))
    with pytest.raises(ValueError, match="belongs to an issuer"):
        ApiKey.from_json(forged.to_json())
