"""Disks without room."""

import errno
from pathlib import Path

import pytest
from servicekit.disk import is_full


def test_a_disk_that_is_full() -> None:
    """What the kernel says of a device without room, which Linux has for trying."""
    with pytest.raises(OSError, match="No space left") as caught, Path("/dev/full").open("wb") as file:
        file.write(b"x")
    assert is_full(caught.value)


@pytest.mark.parametrize(("number", "full"), [(errno.EDQUOT, True), (errno.EFBIG, True), (errno.EIO, False)])
def test_its_errors(number: int, full: bool) -> None:
    """Quotas and limits of a process are no room either; a broken disk is another matter."""
    assert is_full(OSError(number, "")) is full


def test_other_errors() -> None:
    """They have nothing to do with it."""
    assert not is_full(ValueError(errno.ENOSPC))
    assert not is_full(None)
