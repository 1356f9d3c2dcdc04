import pytest
from gateway.domain import Action, Detector, Detectors
from gateway.frontends.profiles import Frontend
from gateway.frontends.snapshot import Frontends
from servicekit.errors import PermissionDenied
from servicekit.principal import LOCAL, Principal

CLOSED = Frontend(
    "help", default_index="docs", model="small", indexes=frozenset({"more"}), models=frozenset({"large"})
)
ANN = Principal("local", "ann", oids=("ann",), roles=("ask",))


def test_the_profile_has_defaults() -> None:
    """A request may omit or name the profile's index and model, even if they are in no list."""
    assert CLOSED.index_for("", "index") == CLOSED.index_for("docs", "index") == "docs"
    assert CLOSED.model_for("", "model") == CLOSED.model_for("small", "model") == "small"
    assert Frontend().index_for("", "index") == ""


def test_a_request_chooses_from_the_lists() -> None:
    """A request may choose from the profile's lists. Without a list, it may choose any value."""
    assert CLOSED.index_for("more", "index") == "more"
    assert CLOSED.model_for("large", "model") == "large"
    assert Frontend().index_for("any", "index") == "any"


@pytest.mark.parametrize("requested", ["other", "DOCS", "docs ", "more\x00", "x" * 5000])
def test_other_values_are_refused(requested: str) -> None:
    """The refusal names the field of the request and shortens a long value."""
    for choose in (CLOSED.index_for, CLOSED.model_for):
        with pytest.raises(PermissionDenied) as caught:
            choose(requested, "context.overrides.it")
        assert caught.value.field == "context.overrides.it"
        assert len(caught.value.message) < 1000


def test_a_prompt_template_can_be_forbidden() -> None:
    """A profile without prompt templates refuses one, and the error names the field."""
    Frontend().check_prompt_template("f")
    with pytest.raises(PermissionDenied, match="f: "):
        Frontend(allows_prompt_template=False).check_prompt_template("f")


def test_detectors_are_only_added() -> None:
    """A request can add detectors after the profile's, but cannot remove or weaken those."""
    own = Detectors(output=(Detector("pii", Action.BLOCK),))
    weaker = Detectors(output=(Detector("pii", Action.REPORT, allow_on_error=True),))
    assert Frontend(detectors=own).detectors_for(weaker).output == own.output + weaker.output
    assert Frontend(detectors=own).detectors_for(Detectors()) == own


def test_the_detectors_that_a_request_may_add() -> None:
    """A request may add any detector, none, or those of a list, for any direction."""
    own = Detectors(output=(Detector("pii", Action.BLOCK),))
    for side in ("input", "context", "output"):
        requested = Detectors(**{side: (Detector("words", Action.REPORT),)})
        for allowed in (None, frozenset(("words",))):
            assert Frontend(detectors=own, allowed_detectors=allowed).detectors_for(requested) == own + requested
        for allowed in (frozenset(), frozenset(("pii",))):
            with pytest.raises(PermissionDenied, match="'words'") as caught:
                Frontend(detectors=own, allowed_detectors=allowed).detectors_for(
                    requested, "context.overrides.detectors"
                )
            assert caught.value.field == "context.overrides.detectors"
    assert Frontend(detectors=own, allowed_detectors=frozenset()).detectors_for(Detectors()) == own


@pytest.mark.parametrize(
    ("enforced", "requested", "free"), [(0, 0, True), (0, 1, False), (1, 0, False), (1, 1, False)]
)
def test_when_access_lists_apply(enforced: bool, requested: bool, free: bool) -> None:
    """Access lists apply to an administrator if the profile or the request says so, and always to other callers."""
    frontend = Frontend(enforce_access=bool(enforced))
    assert frontend.principal_for(LOCAL, filter_requested=bool(requested)).sees_everything is free
    assert frontend.principal_for(ANN, filter_requested=bool(requested)) is ANN


def test_a_bound_principal_loses_only_its_admin_role() -> None:
    """Under access lists, an administrator keeps its tenant and its other roles."""
    bound = Frontend(enforce_access=True).principal_for(LOCAL, filter_requested=False)
    assert (bound.tenant, bound.roles) == (LOCAL.tenant, ("ask", "ingest"))


HELP = Frontend(
    "help",
    mount="help",
    hosts=frozenset({"help.example.com", "[::1]:8080"}),
    origins=frozenset({"https://a.example"}),
)
STAFF = Frontend("staff", mount="staff", hosts=frozenset({"help.example.com:8443"}))
DEFAULT = Frontend()
ALL = Frontends(DEFAULT, [HELP, STAFF])


@pytest.mark.parametrize(
    ("path", "host", "origin", "found", "rest"),
    [
        ("/help/chat", "", "", HELP, "/chat"),
        ("/help/chat/stream", "localhost", "", HELP, "/chat/stream"),
        ("/help", "", "", HELP, "/"),
        ("/help/", "", "", HELP, "/"),
        ("/help/help/x", "", "", HELP, "/help/x"),
        ("/helps/chat", "", "", DEFAULT, "/helps/chat"),
        ("/staff/content/a/b.pdf", "help.example.com", "", STAFF, "/content/a/b.pdf"),
        ("/chat", "help.example.com", "", HELP, "/chat"),
        ("/chat", "help.example.com:80", "", HELP, "/chat"),
        ("/chat", "help.example.com:8443", "", STAFF, "/chat"),
        ("/chat", "[::1]:8080", "", HELP, "/chat"),
        ("/chat", "[::1]", "", DEFAULT, "/chat"),
        ("/chat", "help.example.com:8443", "https://a.example", STAFF, "/chat"),
        ("/chat", "other", "https://a.example", HELP, "/chat"),
        ("/chat", "other", "https://b.example", DEFAULT, "/chat"),
        ("/chat", "", "", DEFAULT, "/chat"),
        ("/", "", "", DEFAULT, "/"),
        ("*", "", "", DEFAULT, "*"),
        ("", "", "", DEFAULT, ""),
    ],
)
def test_a_request_belongs_to_its_mount_else_its_host_else_its_origin(
    path: str, host: str, origin: str, found: Frontend, rest: str
) -> None:
    """The mount precedes the host, the host the origin, and the origin the default.

    The mount is removed from the path.
    """
    assert ALL.resolve(path, host, origin) == (found, rest)


def test_allowed_origins() -> None:
    """A profile allows its own origins, those of `cors`, and all if `cors` has `*`."""
    frontend = Frontend(origins=frozenset({"https://a"}), cors=frozenset({"https://b"}))
    assert [frontend.allows_origin(origin) for origin in ("https://a", "https://b", "https://c", "", "*")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert Frontend(cors=frozenset({"*"})).allows_origin("https://c")
    assert not Frontend().allows_origin("null")
