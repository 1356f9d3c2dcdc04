"""Disks without room."""

import errno
from pathlib import Path

import pytest
from servicekit.disk import is_full


def test_a_disk_that_is_full() -> None:
    """The error of a full device counts as a full disk. Linux has such a device for tests."""
    with pytest.raises(OSError, match="No space left") as caught, Path("/dev/full").open("wb") as file:
        file.write(b"x")
    assert is_full(caught.value)


@pytest.mark.parametrize(("number", "full"), [(errno.EDQUOT, True), (errno.EFBIG, True), (errno.EIO, False)])
def test_errors_of_full_disks(number: int, full: bool) -> None:
    """A reached quota or limit of the process counts as a full disk. A broken disk does not."""
    assert is_full(OSError(number, "")) is full


def test_other_errors() -> None:
    """Other errors do not count as a full disk."""
    assert not is_full(ValueError(errno.ENOSPC))
    assert not is_full(None)
