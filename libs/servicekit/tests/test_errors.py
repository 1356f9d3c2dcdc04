from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st
from servicekit import errors
from servicekit.errors import TABLE, CausewayError, Internal, NotFound, UpstreamRejected


def _classes(base: type[CausewayError]) -> list[type[CausewayError]]:
    return [base, *(leaf for child in base.__subclasses__() for leaf in _classes(child))]


OURS = [error for error in _classes(CausewayError)[1:] if error.__module__ == errors.__name__]
OWN_FACTS = ("field", "resource", "retry_after")
TEXT = st.text(max_size=40)

plain = st.builds(
    lambda kind, message, **facts: kind(message, **facts),
    st.sampled_from([error for error in OURS if error not in (Internal, UpstreamRejected)]),
    TEXT,
    field=st.none() | TEXT,
    resource=st.none() | TEXT,
    retry_after=st.none() | st.floats(min_value=0, allow_infinity=False),
    details=st.dictionaries(TEXT.filter(lambda name: name not in OWN_FACTS), TEXT, max_size=4),
)
rejected = st.builds(
    UpstreamRejected,
    TEXT,
    status=st.integers(100, 599),
    body=TEXT,
    retry_after=st.none() | st.floats(min_value=0, allow_infinity=False),
)


def test_every_class_has_a_row() -> None:
    """Each class of the tree has exactly one row, so no class becomes a defect by mistake."""
    assert sorted(row.error.__name__ for row in TABLE) == sorted(error.__name__ for error in OURS)


def test_reasons_are_unique_and_named_after_their_class() -> None:
    """Each reason belongs to one class and is the class's name in capitals."""
    assert len({row.reason for row in TABLE}) == len(TABLE)
    for row in TABLE:
        assert row.reason.replace("_", "") == row.error.__name__.upper()


def test_a_class_without_a_row_uses_the_row_of_its_base() -> None:
    """A subclass without a row has the form of its nearest base class with a row."""

    class NoSuchChapter(NotFound):
        pass

    class Unheard(CausewayError):
        pass

    assert errors.row_of(NoSuchChapter("gone")).error is NotFound
    assert errors.row_of(Unheard("what?")).error is Internal


@given(plain | rejected)
def test_unpacked_errors_equal_packed_errors(error: CausewayError) -> None:
    """An error consists of reason, code, message and facts: `build` after `facts_of` gives an equal error."""
    row = errors.row_of(error)
    built = errors.build(row.reason, row.code, error.message, errors.facts_of(error))
    assert type(built) is type(error)
    assert vars(built) == vars(error)


def test_internal_errors_hide_message_and_facts() -> None:
    """The receiver gets neither a defect's own message nor its facts."""
    built = errors.build("INTERNAL", StatusCode.INTERNAL, "KeyError: 'password'", {"path": "/etc"})
    assert (type(built), built.message, built.details) == (Internal, Internal.MESSAGE, {})


def test_messages_with_an_unknown_reason_are_not_passed_on() -> None:
    """With an unknown reason, the message is not passed on, because it may have internal details."""
    for reason in (None, "", "SOMEBODY_ELSES"):
        for code in StatusCode:
            assert "10.0.0.7" not in errors.build(reason, code, "connect to 10.0.0.7 failed", {}).message


def test_only_statuses_of_errors_are_passed_on() -> None:
    """A refusal with 200 or 302 is a bad gateway, and neither a success nor a redirect."""
    statuses = [
        errors.http_status(UpstreamRejected("", status=status, body="")) for status in (0, 200, 302, 400, 599, 600)
    ]
    assert statuses == [502, 502, 502, 400, 599, 502]


def test_facts_of_another_version_do_not_hide_the_error() -> None:
    """Unreadable facts are left out, and class and message stay."""
    limited = errors.build("RATE_LIMITED", StatusCode.RESOURCE_EXHAUSTED, "slow down", {"retry_after": "soon"})
    assert (type(limited), limited.message, limited.retry_after) == (errors.RateLimited, "slow down", None)
    endless = errors.build("RATE_LIMITED", StatusCode.RESOURCE_EXHAUSTED, "slow down", {"retry_after": "inf"})
    assert endless.retry_after is None
    refused = errors.build("UPSTREAM_REJECTED", StatusCode.FAILED_PRECONDITION, "no", {"upstream_status": "x"})
    assert isinstance(refused, UpstreamRejected)
    assert (refused.status, refused.body) == (502, "")


def test_the_drawing_of_the_tree_matches_the_classes() -> None:
    """The drawing at the top of the module names every class, indented below its base."""
    drawn: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        bare = line.lstrip("│├└─ ")
        name, depth = bare.split(" ")[0], len(line) - len(bare)
        if line.startswith(("CausewayError", "├", "└", "│")):
            path = [*(ancestor for ancestor in path if ancestor[0] < depth), (depth, name)]
            drawn[name] = path[-2][1] if len(path) > 1 else ""
    assert drawn == {"CausewayError": ""} | {error.__name__: error.__bases__[0].__name__ for error in OURS}
