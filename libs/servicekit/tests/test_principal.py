import pytest
from causeway.identity.v1 import principal_pb2
from hypothesis import given
from hypothesis import strategies as st
from servicekit import keys
from servicekit.errors import Unauthenticated
from servicekit.principal import LOCAL, ROLES, Principal, issuer_and_user

names = st.lists(st.text(), max_size=4).map(tuple)
principals = st.builds(Principal, tenant=st.text(min_size=1), user=st.text(), oids=names, groups=names, roles=names)


@given(principals)
def test_a_principal_crosses_unchanged(principal: Principal) -> None:
    """The receiver gets the same principal that the sender sent."""
    message = principal_pb2.Principal.FromString(principal.to_proto().SerializeToString())
    assert Principal.from_proto(message) == principal


def test_a_message_without_a_tenant_is_refused() -> None:
    """A request without a tenant is refused, because it did not come through a gateway."""
    with pytest.raises(Unauthenticated) as caught:
        Principal.from_proto(principal_pb2.Principal(user="eve", roles=["admin"]))
    assert caught.value.field == "principal.tenant"


@pytest.mark.parametrize(
    ("roles", "everything"),
    [((), False), (("ask", "ingest"), False), (("administrator",), False), (("ask", "admin"), True)],
)
def test_only_administrators_see_everything(roles: tuple[str, ...], everything: bool) -> None:
    """Access lists apply to all callers except a tenant's administrators."""
    assert Principal("t", roles=roles).sees_everything is everything


def test_the_local_caller_may_do_everything() -> None:
    """A stack on one machine has one tenant, and one caller with all roles."""
    assert LOCAL.tenant == "local"
    assert set(LOCAL.roles) == {"ask", "ingest", "admin"}


@pytest.mark.parametrize(
    ("roles", "may"),
    [((), ()), (("ask",), ("ask",)), (("ingest",), ("ingest",)), (("admin",), ROLES), (("root", ""), ())],
)
def test_an_administrator_may_do_everything(roles: tuple[str, ...], may: tuple[str, ...]) -> None:
    """An administrator has all roles. No other role includes another one."""
    principal = Principal("north", roles=roles)
    assert tuple(role for role in ROLES if principal.has_role(role)) == may


@given(st.text())
def test_an_owner_names_the_issuer_and_the_user(user: str) -> None:
    """An owner's name splits into issuer and user. The user of a key has no issuer."""
    issuer = "https://id.example.com"
    assert issuer_and_user(Principal("t", user, issuer=issuer).owner) == (issuer, user)
    if not keys.is_issued(user):
        assert issuer_and_user(Principal("t", user).owner) == ("", user)
