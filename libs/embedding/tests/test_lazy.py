"""Objects that are created at their first use."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from embedding.lazy import Lazy


def test_a_value_is_created_once_for_all_threads() -> None:
    """Eight threads that ask at the same time get the same object."""
    made: list[object] = []
    together = Barrier(8)

    def make() -> object:
        made.append(object())
        return made[-1]

    lazy = Lazy(make)
    assert made == []

    def ask(_: int) -> object:
        together.wait()
        return lazy()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == set(made)
    assert len(made) == 1


def test_after_a_failure_the_next_call_tries_again() -> None:
    """The caller gets the error, and the next call tries again."""
    results = iter([None, "made"])

    def make() -> str:
        found = next(results)
        if found is None:
            raise OSError("away")
        return found

    lazy = Lazy(make)
    with pytest.raises(OSError, match="away"):
        lazy()
    assert lazy() == "made"
