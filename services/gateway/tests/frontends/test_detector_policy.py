from pathlib import Path

import pytest
from causeway_testing.servers import eventually
from gateway.domain import Action, Detector, Detectors
from gateway.frontends import detector_policy
from servicekit.errors import InvalidRequest

FILE = b"""
input:
  - {id: pii, action: block, params: {types: [email]}}
output:
  - {id: words, action: redact, on_error: allow}
"""


def test_a_file_names_detectors_by_direction() -> None:
    """With their action, their parameters as JSON, and what their failure leads to; a side may be missing."""
    assert detector_policy.parse(FILE) == Detectors(
        input=(Detector("pii", Action.BLOCK, allow_on_error=False, params_json=b'{"types":["email"]}'),),
        output=(Detector("words", Action.REDACT, allow_on_error=True),),
    )


def test_an_empty_file_asks_for_nothing() -> None:
    """As good as none."""
    assert detector_policy.parse(b"") == detector_policy.parse(b"# nothing\n") == Detectors()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"outputs: []", "outputs"),
        (b"input: [{id: a, action: block, acton: x}]", "acton"),
        (b"input: [{id: a}]", "action"),
        (b"input: [{id: a, action: shout}]", r"input\[0\]\.action"),
        (b"input: [{action: block}]", "id"),
        (b"input: {}", "input"),
        (b"input: [", "line 1"),
        (b"- 1", "line 1"),
    ],
)
def test_what_is_wrong_is_named(raw: bytes, said: str) -> None:
    """An unknown key, a wrong value, broken YAML."""
    with pytest.raises(ValueError, match=said):
        detector_policy.parse(raw)


def test_a_file_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    """Missing or wrong: an error that names the file, and what is wrong with it."""
    path = tmp_path / "policy.yaml"
    with pytest.raises(InvalidRequest, match=r"^CAUSEWAY_POLICY_FILE: .*policy\.yaml"):
        detector_policy.load(path)
    path.write_bytes(b"outputs: []")
    with pytest.raises(InvalidRequest, match="outputs"):
        detector_policy.load(path)


async def test_a_change_is_read_and_a_bad_one_is_not(tmp_path: Path) -> None:
    """The new detectors hold from then on; a broken file keeps the old ones."""
    path = tmp_path / "policy.yaml"
    path.write_bytes(b"")
    async with detector_policy.load(path) as file:
        path.write_bytes(b"input: [{id: a, action: bl")
        assert not file.check()
        path.write_bytes(FILE)
        await eventually(lambda: bool(file.current.output), what="the reload")
        path.write_bytes(b"nonsense: 1")
        assert not file.check()
        assert file.current == detector_policy.parse(FILE)
