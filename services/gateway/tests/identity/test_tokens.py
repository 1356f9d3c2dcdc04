import base64
import json
import time
from dataclasses import replace
from typing import Any

import jwt
import pytest
from gateway.identity.caller import with_own_oids
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


async def test_a_valid_token_identifies_the_caller(issuer: Any, tokens: Tokens) -> None:
    """The claims have the user, ids, groups and roles. Unknown roles are ignored."""
    token = issuer.token(oid="o1", groups=["staff", "night"], roles=["ask", "root", "ingest"])
    caller = await tokens.caller(token)
    own = f"own:oidc:{issuer.url} ann"
    expected = Principal("local", "ann", ("o1", own), ("staff", "night"), ("ask", "ingest"), issuer.url)
    assert caller.principal == expected
    assert (caller.key_id, caller.profiles) == ("", frozenset())


async def test_rsa_is_supported(issuer: Any, tokens: Tokens) -> None:
    """A token with an RSA signature is accepted, because most providers use RSA."""
    issuer.add("rsa", "RS256")
    assert (await tokens.caller(issuer.token())).principal.user == "ann"


@pytest.mark.parametrize(
    ("claims", "token_claims", "caller"),
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
async def test_the_names_of_claims_are_settings(
    issuer: Any, claims: Claims, token_claims: dict[str, Any], caller: Principal
) -> None:
    """A setting names a claim, or a path into objects. A claim of another type is ignored."""
    expected = with_own_oids(replace(caller, issuer=issuer.url))
    assert (await tokens_of(issuer, claims).caller(issuer.token(**token_claims))).principal == expected


@pytest.mark.parametrize(
    ("former", "kept"),
    [(frozenset(), False), (frozenset({"bob"}), False), (frozenset({"ann"}), True), (frozenset({"*"}), True)],
)
async def test_users_of_tokens_and_of_keys_are_separate(issuer: Any, former: frozenset[str], kept: bool) -> None:
    """The user of a token cannot open uploads of a key's user with the same name, unless the settings allow it."""
    caller = await tokens_of(issuer, Claims(former_names=former)).caller(issuer.token(oid="own:ann"))
    _, record = api_keys.create("ann", "local")
    theirs = with_own_oids(record.principal())
    assert caller.principal.owner != theirs.owner
    assert ("own:ann" in caller.principal.oids) == kept
    assert (theirs.owner in caller.principal.owners) == kept
    assert not set(with_own_oids(caller.principal).oids) & {f"own:oidc:{issuer.url}2 ann", "own:ann2"}


@pytest.mark.parametrize("token_claims", [{"sub": "a\ud800"}, {"oid": "\udfff"}, {"groups": ["staff", "\ud800"]}])
async def test_a_claim_with_a_lone_surrogate_is_refused(
    issuer: Any, tokens: Tokens, token_claims: dict[str, Any]
) -> None:
    """A claim with a lone surrogate is refused, because UTF-8 cannot encode it."""
    [name] = token_claims
    with pytest.raises(Unauthenticated, match=f"'{name}' is not valid Unicode"):
        await tokens.caller(issuer.token(**token_claims))


async def test_a_token_can_be_bound_to_front_ends(issuer: Any) -> None:
    """The claim that the settings name lists the front ends."""
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
async def test_an_invalid_token_is_refused(
    issuer: Any, tokens: Tokens, claims: dict[str, Any], message: str
) -> None:
    """Each refusal has its reason and quotes no part of the token. The token is not cached."""
    token = issuer.token(**claims)
    with pytest.raises(Unauthenticated, match=message) as caught:
        await tokens.caller(token)
    assert caught.value.details == {"challenge": "invalid_token"}
    assert not any(part in caught.value.message for part in token.split("."))
    assert tokens.cached(token) is None


async def test_clocks_may_differ_a_little(issuer: Any, tokens: Tokens) -> None:
    """A token is accepted half a minute before and after its validity."""
    now = int(time.time())
    await tokens.caller(issuer.token(exp=now - 20))
    await tokens.caller(issuer.token(nbf=now + 20, iat=now + 20))


async def test_the_claim_of_the_tenant_is_required(issuer: Any) -> None:
    """A token without the claim is refused, because its user would get the default tenant."""
    with pytest.raises(Unauthenticated, match="names no tenant"):
        await tokens_of(issuer, Claims(tenant="tid")).caller(issuer.token())


def _unsigned(token: str, **header: Any) -> str:
    first = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
    return f"{first}.{token.split('.')[1]}."


async def test_an_invalid_signature_is_refused(issuer: Any, tokens: Tokens) -> None:
    """A token with an invalid signature is refused.

    The tokens have no algorithm, a shared or foreign key, changed content, or fewer than three parts.
    """
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
    """Another algorithm than the key's is refused, even if the settings allow it."""
    issuer.add("rsa", "RS256", alg="RS512")
    keys = ProviderKeys(issuer.url, issuer.fetch, ["RS256", "RS512"])
    tokens = Tokens(keys, issuer.url, ["causeway"], ["RS256", "RS512"], Claims())
    with pytest.raises(Unauthenticated):
        await tokens.caller(issuer.token())


async def test_a_token_is_verified_once(issuer: Any, tokens: Tokens) -> None:
    """A verified token is cached until it expires, and is then accepted without the provider's keys."""
    token = issuer.token()
    assert tokens.cached(token) is None
    caller = await tokens.caller(token)
    assert tokens.cached(token) is caller
    assert tokens.cached(token[:-1]) is None


async def test_a_cached_token_expires(issuer: Any) -> None:
    """A cached token expires with the leeway for clocks."""
    now = time.time()
    tokens = tokens_of(issuer, now=lambda: now)
    token = issuer.token(exp=int(now) + 100)
    await tokens.caller(token)
    now += 125
    assert tokens.cached(token) is not None
    now += 10
    assert tokens.cached(token) is None


async def test_the_cache_of_tokens_is_bounded(issuer: Any) -> None:
    """The oldest tokens are removed first."""
    tokens = tokens_of(issuer, cache_size=3)
    made = [issuer.token(jti=str(number)) for number in range(5)]
    for token in made:
        await tokens.caller(token)
    assert [tokens.cached(token) is not None for token in made] == [False, False, True, True, True]


async def test_tokens_of_a_removed_key_are_refused(issuer: Any) -> None:
    """If the provider removes a key, its cached tokens are verified again and refused."""
    clock = 0.0
    keys = ProviderKeys(issuer.url, issuer.fetch, ["ES256"], clock=lambda: clock)
    tokens = Tokens(keys, issuer.url, ["causeway"], ["ES256"], Claims())
    stolen = issuer.token()
    await tokens.caller(stolen)
    issuer.add("two")
    issuer.remove("one")
    clock += 10
    await tokens.caller(issuer.token())
    assert tokens.cached(stolen) is None
    clock += 10
    with pytest.raises(Unauthenticated, match="does not have"):
        await tokens.caller(stolen)
