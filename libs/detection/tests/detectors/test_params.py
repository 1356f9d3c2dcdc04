"""detection.detectors.params: strict parameters."""

import pytest
from detection.detectors.params import REPLACEMENT, BadParam, Params, decode


class _Some(Params, frozen=True):
    names: list[int]


def test_a_missing_parameter_has_its_default() -> None:
    """A missing parameter has its default. Empty input counts as an empty object."""
    assert decode(b'{"names": [1]}', _Some) == _Some(names=[1], replacement=REPLACEMENT)
    assert decode(b"", Params).replacement == "[REDACTED]"


@pytest.mark.parametrize(
    ("raw", "path", "message"),
    [
        (b'{"names": [1], "nmaes": []}', "nmaes", "unknown field"),
        (b"{}", "names", "missing field"),
        (b'{"names": "x"}', "names", "expected `array`, got `str`"),
        (b'{"names": [1, "x"]}', "names[1]", "expected `int`, got `str`"),
        (b'{"names": [], "replacement": 7}', "replacement", "expected `str`, got `int`"),
        (b"[]", "", "expected `object`, got `array`"),
        (b"{", "", "not JSON: "),
        (b'{"names": [], "replacement": "\xff"}', "", "not JSON: "),
    ],
)
def test_the_error_names_the_wrong_parameter(raw: bytes, path: str, message: str) -> None:
    """The error names the wrong parameter and its path."""
    with pytest.raises(BadParam) as raised:
        decode(raw, _Some)
    assert raised.value.path == path
    assert raised.value.message.startswith(message)
