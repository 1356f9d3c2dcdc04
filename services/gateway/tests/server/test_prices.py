import os
from pathlib import Path

import pytest
from gateway.server import prices
from servicekit.errors import InvalidRequest

GOOD = "currency: EUR\nmodels:\n  small: {input: 0.5, output: 2}\n"


def test_the_documented_example_is_valid() -> None:
    """docs/usage.md shows the example file, and the gateway can read it."""
    root = Path(__file__).resolve().parents[4]
    path = root / "examples" / "prices.yaml"
    assert path.read_text() == (root / "docs" / "usage.md").read_text().split("```yaml\n")[1].split("```")[0]
    assert prices.load(path).current.cost("small", 1_000_000, 0) == pytest.approx(0.15)


def test_the_cost_of_an_answer(tmp_path: Path) -> None:
    """The cost is computed from the prices per million tokens. A model without a price has no cost."""
    (tmp_path / "prices.yaml").write_text(GOOD)
    file = prices.load(tmp_path / "prices.yaml")
    assert file.current.cost("small", 1_000_000, 500_000) == pytest.approx(1.5)
    assert file.current.cost("large", 1, 1) is None
    assert file.current.currency == "EUR"


def test_a_changed_file_is_loaded(tmp_path: Path) -> None:
    """A changed file is loaded. If it is invalid, the previous prices stay in use."""
    path = tmp_path / "prices.yaml"
    path.write_text(GOOD)
    file = prices.load(path)
    path.write_text(GOOD.replace("0.5", "7"))
    assert file.check()
    assert file.current.cost("small", 1_000_000, 0) == 7
    path.write_text("models: 3")
    assert not file.check()
    assert file.current.cost("small", 1_000_000, 0) == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("currency: EUR\nmodels: {a: {input: -1, output: 1}}", "models.a.input"),
        ("currency: euros\nmodels: {}", "currency"),
        ("currency: EUR\nmodels: {a: {input: 1}}", "models.a.output"),
        (GOOD + "more: 1", "more"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error for an invalid file names its path and the key, and the error for a missing file the setting."""
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=rf"^CAUSEWAY_PRICES_FILE: {path}, .*" + message.replace(".", r"\.")):
        prices.load(path)
    os.remove(path)
    with pytest.raises(InvalidRequest, match="CAUSEWAY_PRICES_FILE"):
        prices.load(path)
