from pathlib import Path

import pytest
from gateway.identity.caller import LOOPBACK, Caller
from gateway.quotas import limits
from gateway.quotas.limits import Holder, Measure, holders
from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

GOOD = """
defaults:
  tenant: {requests_per_minute: 600, tokens_per_minute: 200000, ingest_bytes_per_day: 1GiB}
  key: {requests_per_minute: 60, concurrent_requests: 4}
tenants:
  north: {requests_per_minute: 6000, ingest_bytes_per_day: null}
keys:
  loader: {concurrent_requests: 1}
"""


def of(text: str, holder: Holder) -> dict[str, int]:
    """Return the limits of a caller by their names in the file."""
    return {m.value: limit for m, limit in limits.parse(text.encode(), "quotas.yaml").of(holder).items()}


def test_the_documented_example_is_valid() -> None:
    """The page shows the example file, and its limits apply."""
    root = Path(__file__).resolve().parents[4]
    example = (root / "examples" / "quotas.yaml").read_text()
    assert example == (root / "docs" / "quotas.md").read_text().split("```yaml\n")[1].split("```")[0]
    assert of(example, Holder("tenant", "north"))["tokens_per_minute"] == 2_000_000


def test_named_callers_override_the_defaults() -> None:
    """A named caller has the file's limits, and others the defaults. `null` removes a default."""
    assert of(GOOD, Holder("tenant", "south")) == {
        "requests_per_minute": 600,
        "tokens_per_minute": 200_000,
        "ingest_bytes_per_day": 1024**3,
    }
    assert of(GOOD, Holder("tenant", "north")) == {"requests_per_minute": 6000, "tokens_per_minute": 200_000}
    assert of(GOOD, Holder("key", "north", "loader")) == {"requests_per_minute": 60, "concurrent_requests": 1}
    assert of(GOOD, Holder("user", "north", "ann")) == {}
    assert of("", Holder("tenant", "north")) == {}


def test_a_request_uses_two_quotas() -> None:
    """A request uses the quota of its key, or of its user without a key, and that of its tenant."""
    caller = Caller(Principal("north", "ann"), "id", "loader")
    assert holders(caller) == (Holder("key", "north", "loader"), Holder("tenant", "north"))
    assert holders(Caller(Principal("north", "ann"))) == (Holder("user", "north", "ann"), Holder("tenant", "north"))
    assert holders(LOOPBACK)[1] == Holder("tenant", LOOPBACK.principal.tenant)


def test_a_changed_file_is_reloaded(tmp_path: Path) -> None:
    """A check of the file loads new limits. If the file is invalid, the previous limits remain."""
    path = tmp_path / "quotas.yaml"
    path.write_text(GOOD)
    file = limits.load(path)
    path.write_text(GOOD.replace("600,", "7,"))
    assert file.check()
    assert file.current.of(Holder("tenant", "south"))[Measure.REQUESTS] == 7
    path.write_text("keys: 3")
    assert not file.check()
    assert file.current.of(Holder("tenant", "south"))[Measure.REQUESTS] == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults: {key: {requests_per_minute: 0}}", "defaults.key.requests_per_minute"),
        ("defaults: {keys: {}}", "defaults.keys: there is no such key"),
        ("tenants: {north: {requests: 3}}", "tenants.north.requests: there is no such key"),
        ("keys: {loader: {ingest_bytes_per_day: much}}", "keys.loader.ingest_bytes_per_day"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the path of the file and the key, or the setting if the file is missing."""
    path = tmp_path / "quotas.yaml"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=rf"^CAUSEWAY_QUOTAS_FILE: {path}, line 1.*{message}"):
        limits.load(path)
    path.unlink()
    with pytest.raises(InvalidRequest, match="CAUSEWAY_QUOTAS_FILE"):
        limits.load(path)
