"""Disks without room."""

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: BaseException | None) -> bool:
    """The disk, the user's quota of it, or what one file of this process may take (setrlimit(2)) is used up."""
    return isinstance(error, OSError) and error.errno in _FULL
