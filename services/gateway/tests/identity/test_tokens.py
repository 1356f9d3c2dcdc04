import base64
import json
import time
from dataclasses import replace
from typing import Any

import jwt
import pytest
from gateway.identity.caller import with_own
from gateway.identity.provider_keys import ProviderKeys
from gateway.identity.tokens import Claims, Tokens
from servicekit import api_keys
from servicekit.errors import Unauthenticated
from servicekit.principal import Principal


def tokens_of(issuer: Any, claims: Claims | None = None, **more: Any) -> Tokens:
    keys = ProviderKeys(issuer.url, issuer.fetch, ["ES256", "RS256"])
    return Tokens(keys, issuer.url, ["causeway", "other"], ["ES256", "RS256"], claims or Claims(), **more)


@pytest.fixture
def tokens(issuer: Any) -> Tokens:
    return tokens_of(issuer)


async def test_a_good_token_says_who_asks(issuer: Any, tokens: Tokens) -> None:
    """User, ids, groups and roles come from its claims; unknown roles are ignored."""
    token = issuer.token(oid="o1", groups=["staff", "night"], roles=["ask", "root", "ingest"])
    caller = await tokens.caller(token)
    own = f"own:oidc:{issuer.url} ann"
    expected = Principal("local", "ann", ("o1", own), ("staff", "night"), ("ask", "ingest"), issuer.url)
    assert caller.principal == expected
    assert (caller.key_id, caller.profiles) == ("", frozenset())


async def test_rsa_is_understood(issuer: Any, tokens: Tokens) -> None:
    """Most providers sign with RSA."""
    issuer.add("rsa", "RS256")
    assert (await tokens.caller(issuer.token())).principal.user == "ann"


@pytest.mark.parametrize(
    ("claims", "said", "caller"),
    [
        (Claims(user="oid"), {"oid": "o1"}, Principal("local", "o1", ("o1",))),
        (Claims(), {}, Principal("local", "ann", ("ann",))),
        (Claims(tenant="tid"), {"tid": "north"}, Principal("north", "ann", ("ann",))),
        (Claims(default_tenant="east"), {"tid": "north"}, Principal("east", "ann", ("ann",))),
        (Claims(roles="scp"), {"scp": "ask openid"}, Principal("local", "ann", ("ann",), (), ("ask",))),
        (
            Claims(roles="realm_access.roles"),
            {"realm_access": {"roles": ["admin"]}},
            Principal("local", "ann", ("ann",), (), ("admin",)),
        ),
        (
            Claims(groups="https://example.com/groups"),
            {"https://example.com/groups": ["staff"]},
            Principal("local", "ann", ("ann",), ("staff",)),
        ),
        (
            Claims(role_names={"Readers": "ask"}, default_roles=["ingest"]),
            {"roles": ["Readers"]},
            Principal("local", "ann", ("ann",), (), ("ask", "ingest")),
        ),
        (Claims(), {"groups": [1, None, "staff", "staff", ""]}, Principal("local", "ann", ("ann",), ("staff",))),
        (Claims(), {"groups": {"a": "b"}, "roles": 7}, Principal("local", "ann", ("ann",))),
    ],
)
async def test_which_claim_says_what_can_be_set(
    issuer: Any, claims: Claims, said: dict[str, Any], caller: Principal
) -> None:
    """By name, or by a path into objects; a claim of another type is ignored."""
    expected = with_own(replace(caller, issuer=issuer.url))
    assert (await tokens_of(issuer, claims).caller(issuer.token(**said))).principal == expected


@pytest.mark.parametrize(
    ("former", "kept"),
    [(frozenset(), False), (frozenset({"bob"}), False), (frozenset({"ann"}), True), (frozenset({"*"}), True)],
)
async def test_a_user_of_a_token_is_no_user_of_a_key(issuer: Any, former: frozenset[str], kept: bool) -> None:
    """It cannot open the uploads of a key's user of this name, unless the settings allow it."""
    caller = await tokens_of(issuer, Claims(former_names=former)).caller(issuer.token(oid="own:ann"))
    _, record = api_keys.make("ann", "local")
    theirs = with_own(record.principal())
    assert caller.principal.owner != theirs.owner
    assert ("own:ann" in caller.principal.oids) == kept
    assert (theirs.owner in caller.principal.owners) == kept
    assert not set(with_own(caller.principal).oids) & {f"own:oidc:{issuer.url}2 ann", "own:ann2"}


@pytest.mark.parametrize("said", [{"sub": "a\ud800"}, {"oid": "\udfff"}, {"groups": ["staff", "\ud800"]}])
async def test_a_claim_that_is_no_text_is_refused(issuer: Any, tokens: Tokens, said: dict[str, Any]) -> None:
    """JSON can contain a lone surrogate, which UTF-8 cannot encode."""
    [name] = said
    with pytest.raises(Unauthenticated, match=f"'{name}' is not valid Unicode"):
        await tokens.caller(issuer.token(**said))


async def test_a_token_may_be_bound_to_front_ends(issuer: Any) -> None:
    """The claim in the settings names the front ends."""
    token = issuer.token(azp=["help", "staff"])
    assert (await tokens_of(issuer, Claims(profiles="azp")).caller(token)).profiles == {"help", "staff"}


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"exp": int(time.time()) - 31}, "expired"),
        ({"nbf": int(time.time()) + 10**6}, "not valid yet"),
        ({"iat": int(time.time()) + 10**6}, "not valid yet"),
        ({"aud": "another"}, "another audience"),
        ({"aud": []}, "lacks a required claim"),
        ({"iss": "https://evil.example.com"}, "another issuer"),
        ({"exp": None}, "lacks a required claim"),
        ({"iss": None}, "lacks a required claim"),
        ({"aud": None}, "lacks a required claim"),
        ({"exp": "soon"}, "not a valid token"),
        ({"sub": None}, "names no user"),
        ({"sub": ""}, "names no user"),
    ],
)
async def test_a_token_that_is_not_for_us(
    issuer: Any, tokens: Tokens, claims: dict[str, Any], message: str
) -> None:
    """Each error has its own reason and no content of the token; the token is not cached."""
    token = issuer.token(**claims)
    with pytest.raises(Unauthenticated, match=message) as caught:
        await tokens.caller(token)
    assert caught.value.details == {"challenge": "invalid_token"}
    assert not any(part in caught.value.message for part in token.split("."))
    assert tokens.known(token) is None


async def test_clocks_may_differ_a_little(issuer: Any, tokens: Tokens) -> None:
    """The leeway is half a minute in both directions."""
    now = int(time.time())
    await tokens.caller(issuer.token(exp=now - 20))
    await tokens.caller(issuer.token(nbf=now + 20, iat=now + 20))


async def test_a_tenants_claim_must_be_there(issuer: Any) -> None:
    """Otherwise a user without a tenant would get the default one."""
    with pytest.raises(Unauthenticated, match="names no tenant"):
        await tokens_of(issuer, Claims(tenant="tid")).caller(issuer.token())


def _unsigned(token: str, **header: Any) -> str:
    first = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
    return f"{first}.{token.split('.')[1]}."


async def test_what_nobody_signed_is_refused(issuer: Any, tokens: Tokens) -> None:
    """No algorithm, one with a shared key, another's key under the right name, changed content, half a token."""
    good = issuer.token(roles=["admin"])
    public = json.loads(issuer.document("/keys"))["keys"][0]["x"]
    shared = jwt.encode({"sub": "ann"}, public + "x" * 32, "HS256", {"kid": "one"})
    forged = type(issuer)(issuer.url).token(roles=["admin"])
    head, body, signature = good.split(".")
    changed = jwt.utils.base64url_encode(
        json.dumps({**jwt.decode(good, options={"verify_signature": False}), "sub": "eve"}).encode()
    ).decode()
    for token in (
        _unsigned(good, alg="none", kid="one"),
        _unsigned(good, alg="ES256", kid="one"),
        shared,
        forged,
        f"{head}.{changed}.{signature}",
        f"{head}.{body}",
        f"{head}.{body}.",
        "x.y.z",
        "",
        "a" * 20_000,
        "\xff.\xff.\xff",
    ):
        with pytest.raises(Unauthenticated):
            await tokens.caller(token)


async def test_a_key_signs_with_its_own_algorithm_alone(issuer: Any) -> None:
    """Other algorithms of the key are refused, even if the settings allow them."""
    issuer.add("rsa", "RS256", alg="RS512")
    keys = ProviderKeys(issuer.url, issuer.fetch, ["RS256", "RS512"])
    tokens = Tokens(keys, issuer.url, ["causeway"], ["RS256", "RS512"], Claims())
    with pytest.raises(Unauthenticated):
        await tokens.caller(issuer.token())


async def test_a_token_is_verified_once(issuer: Any, tokens: Tokens) -> None:
    """It is then cached until it expires, without use of the provider's keys."""
    token = issuer.token()
    assert tokens.known(token) is None
    caller = await tokens.caller(token)
    assert tokens.known(token) is caller
    assert tokens.known(token[:-1]) is None


async def test_a_known_token_ends_at_its_time(issuer: Any) -> None:
    """It expires with the leeway of the clocks."""
    now = time.time()
    tokens = tokens_of(issuer, now=lambda: now)
    token = issuer.token(exp=int(now) + 100)
    await tokens.caller(token)
    now += 125
    assert tokens.known(token) is not None
    now += 10
    assert tokens.known(token) is None


async def test_few_tokens_are_known(issuer: Any) -> None:
    """The oldest are removed first, so that the memory is bounded."""
    tokens = tokens_of(issuer, most=3)
    made = [issuer.token(jti=str(number)) for number in range(5)]
    for token in made:
        await tokens.caller(token)
    assert [tokens.known(token) is not None for token in made] == [False, False, True, True, True]


async def test_a_key_that_went_away_takes_its_tokens_along(issuer: Any) -> None:
    """A stolen key is removed from the provider's list: its tokens are verified again, and refused."""
    clock = 0.0
    keys = ProviderKeys(issuer.url, issuer.fetch, ["ES256"], clock=lambda: clock)
    tokens = Tokens(keys, issuer.url, ["causeway"], ["ES256"], Claims())
    stolen = issuer.token()
    await tokens.caller(stolen)
    issuer.add("two")
    issuer.remove("one")
    clock += 10
    await tokens.caller(issuer.token())
    assert tokens.known(stolen) is None
    clock += 10
    with pytest.raises(Unauthenticated, match="does not have"):
        await tokens.caller(stolen)
