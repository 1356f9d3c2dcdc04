import json
from typing import Any

import pytest
from gateway.dialects.exchange import Dialect
from gateway.dialects.rag_chat.registration import Stages
from gateway.frontends.profiles import Frontend

STAGES = Stages()
BARE = STAGES.bare_paths()
JSON = {b"content-type": b"application/json"}
FORM = {b"content-type": b"Multipart/Form-Data; boundary=x"}
SDK = {b"user-agent": b"ts-http-runtime/1.0.0-beta.1 Node/v20"}
BROWSER_SDK = {b"x-ms-useragent": b"ts-http-runtime/1.0.0-beta.1"}
A, B, C, D, E = "2024-01", "2024-01-28", "2024-04", "2024-05-29", "2026-04-10"


def stage_of(path: str, body: Any = None, headers: dict[bytes, bytes] | None = None, **profile: Any) -> str:
    raw = body if isinstance(body, bytes) else json.dumps({"messages": "x"} | (body or {})).encode()
    return BARE[path](Frontend(**profile), JSON | (headers or {}), raw).name


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("/2024-01/chat", A),
        ("/2024-01/ask", A),
        ("/2024-01-28/chat", B),
        ("/2024-04/chat", C),
        ("/2024-04/chat/stream", C),
        ("/2024-05-29/chat", D),
        ("/2024-05-29/chat/stream", D),
        ("/api/chat", D),
        ("/api/chat/stream", D),
        ("/2026-04-10/chat", E),
        ("/2026-04-10/chat/stream", E),
    ],
)
def test_a_fixed_path_never_changes_its_meaning(path: str, stage: str) -> None:
    """Each of the eleven fixed paths has its stage."""
    fixed = STAGES.single_stage_paths()
    assert fixed[path].name == stage
    assert len(fixed) == 11


def test_the_default_stage_is_2024_04() -> None:
    """If the request does not show its stage, `/chat` has the stage 2024-04."""
    assert stage_of("/chat") == C
    assert stage_of("/chat/stream") == C


@pytest.mark.parametrize(
    ("members", "headers"),
    [
        ({}, FORM),
        ({"sessionState": None}, {}),
        ({"sessionState": {}, "stream": True}, {}),
        ({}, SDK),
        ({}, BROWSER_SDK),
    ],
)
def test_the_sdk_is_detected(members: dict[str, Any], headers: dict[bytes, bytes]) -> None:
    """A form, `sessionState` or the SDK's user agent selects the stage 2024-05-29, on both paths."""
    assert stage_of("/chat", members, headers) == D
    assert stage_of("/chat/stream", members, headers) == D


@pytest.mark.parametrize("stream", [True, False, None, "yes"])
def test_stream_in_the_body_chooses_the_first_stage(stream: Any) -> None:
    """On `/chat`, a body with `stream` has the stage 2024-01. `/chat/stream` ignores it."""
    assert stage_of("/chat", {"stream": stream}) == A
    assert stage_of("/chat/stream", {"stream": stream}) == C


def test_only_the_top_level_of_the_body_is_read() -> None:
    """Nested members do not choose a stage, nor does a body that is not an object."""
    assert stage_of("/chat", {"context": {"stream": True, "sessionState": 1}, "messages": "stream"}) == C
    assert stage_of("/chat", b'{"stream": true') == C
    assert stage_of("/chat", b"") == C
    assert stage_of("/chat", b'{"\\u0073tream": true}') == A
    assert stage_of("/chat", b'["stream", "sessionState"]') == C


@pytest.mark.parametrize("headers", [{}, FORM, SDK])
def test_ask_always_has_the_first_stage(headers: dict[bytes, bytes]) -> None:
    """`/ask` has the stage 2024-01 for any client and any profile."""
    for profile in ({}, {"dialect": E, "mount": "m"}, {"dialect": C}):
        assert stage_of("/ask", {"sessionState": 1}, headers, **profile) == A


@pytest.mark.parametrize(
    "match", [{"mount": "m"}, {"hosts": frozenset({"h"})}, {"origins": frozenset({"https://o"})}]
)
@pytest.mark.parametrize("stage", [A, B, C, D, E])
def test_a_profile_precedes_the_request(match: dict[str, Any], stage: str) -> None:
    """On its paths, the profile's dialect has priority over the format of the request."""
    for members, headers in (({}, {}), ({"stream": True}, {}), ({"sessionState": 1}, SDK)):
        assert stage_of("/chat", members, headers, dialect=stage, **match) == stage
    if stage in (C, D, E):
        assert stage_of("/chat/stream", {}, SDK, dialect=stage, **match) == stage
    else:
        assert stage_of("/chat/stream", {}, {}, dialect=stage, **match) == C
        assert stage_of("/chat/stream", {}, SDK, dialect=stage, **match) == D


def test_the_default_profile_sets_the_default() -> None:
    """The format of the request has priority over the dialect of the default profile."""
    assert stage_of("/chat", dialect=E) == E
    assert stage_of("/chat", {"stream": True}, dialect=E) == A
    assert stage_of("/chat", {}, SDK, dialect=E) == D
    assert stage_of("/chat/stream", dialect=A) == C


def test_profiles_can_name_every_stage() -> None:
    """The names of the dialects are the prefixes of their paths."""
    assert STAGES.names() == {A, B, C, D, E}
    dialects: list[Dialect] = list(STAGES.single_stage_paths().values())
    assert {dialect.name for dialect in dialects} == STAGES.names()
