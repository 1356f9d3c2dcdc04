"""Objects that are created at their first use."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from embedding.lazy import Lazy


def test_a_value_is_created_once_for_all_threads() -> None:
    """Eight threads that ask at the same time get the same object."""
    created: list[object] = []
    together = Barrier(8)

    def make() -> object:
        created.append(object())
        return created[-1]

    lazy = Lazy(make)
    assert created == []

    def ask(_: int) -> object:
        together.wait()
        return lazy()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == set(created)
    assert len(created) == 1


def test_after_a_failure_the_next_call_tries_again() -> None:
    """The caller gets the error, and the next call tries again."""
    results = iter([None, "value"])

    def make() -> str:
        found = next(results)
        if found is None:
            raise OSError("unavailable")
        return found

    lazy = Lazy(make)
    with pytest.raises(OSError, match="unavailable"):
        lazy()
    assert lazy() == "value"
