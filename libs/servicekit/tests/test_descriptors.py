"""The limit of file descriptors."""

import resource

import pytest
from servicekit import descriptors


@pytest.mark.parametrize(
    ("hard", "requested", "raised", "limit"),
    [
        (4096, 100, None, 100),
        (4096, 1000, 1256, 1000),
        (4096, 10_000, 4096, 3840),
        (resource.RLIM_INFINITY, 10_000, 10_256, 10_000),
        (256, 10, 256, 1),
    ],
)
def test_the_limit_fits_the_descriptors(
    hard: int, requested: int, raised: int | None, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process raises its limit of descriptors, or returns a lower number if it may not."""
    calls: list[tuple[int, int]] = []
    soft = min(1024, hard) if hard > 0 else 1024
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: calls.append(both))
    assert descriptors.limit(requested, "things") == limit
    assert calls == ([] if raised is None else [(raised, hard)])
