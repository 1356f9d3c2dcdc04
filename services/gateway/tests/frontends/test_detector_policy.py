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
    """A detector has an action, parameters and a rule for failures. A direction is optional."""
    assert detector_policy.parse(FILE) == Detectors(
        input=(Detector("pii", Action.BLOCK, allow_on_error=False, params_json=b'{"types":["email"]}'),),
        output=(Detector("words", Action.REDACT, allow_on_error=True),),
    )


def test_an_empty_file_has_no_detectors() -> None:
    """An empty file, or one with comments only, has no detectors."""
    assert detector_policy.parse(b"") == detector_policy.parse(b"# nothing\n") == Detectors()


@pytest.mark.parametrize(
    ("raw", "message"),
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
def test_an_invalid_policy_is_refused(raw: bytes, message: str) -> None:
    """The error names an unknown key, a wrong value or the line of invalid YAML."""
    with pytest.raises(ValueError, match=message):
        detector_policy.parse(raw)


def test_a_missing_or_invalid_file_ends_the_start(tmp_path: Path) -> None:
    """The error names the setting and the file, or the wrong key."""
    path = tmp_path / "policy.yaml"
    with pytest.raises(InvalidRequest, match=r"^CAUSEWAY_POLICY_FILE: .*policy\.yaml"):
        detector_policy.load(path)
    path.write_bytes(b"outputs: []")
    with pytest.raises(InvalidRequest, match="outputs"):
        detector_policy.load(path)


async def test_a_valid_change_is_loaded(tmp_path: Path) -> None:
    """A changed file is loaded. If it is invalid, the previous detectors remain."""
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
