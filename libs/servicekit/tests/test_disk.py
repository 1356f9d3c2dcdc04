"""The detection of full disks."""

import errno
from pathlib import Path

import pytest
from servicekit.disk import is_full


def test_a_full_device_counts_as_a_full_disk() -> None:
    """The error of a full device counts as a full disk. Linux has such a device for tests."""
    with pytest.raises(OSError, match="No space left") as caught, Path("/dev/full").open("wb") as file:
        file.write(b"x")
    assert is_full(caught.value)


@pytest.mark.parametrize(("number", "full"), [(errno.EDQUOT, True), (errno.EFBIG, True), (errno.EIO, False)])
def test_exhausted_limits_count_as_a_full_disk(number: int, full: bool) -> None:
    """A reached quota or limit of the process counts as a full disk. A broken disk does not."""
    assert is_full(OSError(number, "")) is full


def test_other_errors_do_not_count_as_a_full_disk() -> None:
    """Other errors do not count as a full disk."""
    assert not is_full(ValueError(errno.ENOSPC))
    assert not is_full(None)
