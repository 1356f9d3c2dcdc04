"""Detects full disks."""

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: BaseException | None) -> bool:
    """Return whether the disk, the user's quota or the process's file size limit (setrlimit(2)) is exhausted."""
    return isinstance(error, OSError) and error.errno in _FULL
