"""Writes compound files (MS-CFB) and Outlook mails (MS-OXMSG), because no available library writes them."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

_SECTOR, _SMALL_SECTOR, _CUTOFF = 512, 64, 4096
_FREE, _END, _FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
_STORAGE, _STREAM, _ROOT = 1, 2, 5

Tree = Mapping[str, "bytes | Tree"]
"""The content of each stream, and the tree of each storage, by name."""


@dataclass
class _Entry:
    name: str
    kind: int
    content: bytes = b""
    child: int = _FREE
    right: int = _FREE
    start: int = _END


def compound(tree: Tree) -> bytes:
    """Return a compound file. The root's stream contains the small streams. Sectors contain all other streams."""
    root = _Entry("Root Entry", _ROOT)
    entries = [root]
    _add(entries, 0, tree)
    small = _Blocks(_SMALL_SECTOR)
    for entry in entries:
        if 0 < len(entry.content) < _CUTOFF:
            entry.start = small.put(entry.content)
    root.content = small.content
    large = _Blocks(_SECTOR)
    for entry in entries:
        if entry is root or len(entry.content) >= _CUTOFF:
            entry.start = large.put(entry.content)
    small_table = large.put(struct.pack(f"<{len(small.chain)}I", *small.chain))
    directory = large.put(b"".join(map(_directory_entry, entries)))
    count = 1
    while (len(large.chain) + count) * 4 > count * _SECTOR:
        count += 1
    first = len(large.chain)
    table = [*large.chain, *[_FAT] * count]
    table += [_FREE] * (count * _SECTOR // 4 - len(table))
    signature, version = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", (0x3E, 3, 0xFFFE, 9, 6)
    small_count = -(-len(small.chain) * 4 // _SECTOR)
    header = struct.pack("<8s16x5H6xI", signature, *version, 0)
    header += struct.pack("<9I", count, directory, 0, _CUTOFF, small_table, small_count, _END, 0, first)
    fat_sectors = [first + number for number in range(1, count)]
    header += struct.pack("<108I", *fat_sectors, *[_FREE] * (108 - len(fat_sectors)))
    return header + large.content + struct.pack(f"<{len(table)}I", *table)


class _Blocks:
    """Contents in blocks of one size, and the chain of the blocks: the number of the next block for each block."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.content = b""
        self.chain: list[int] = []

    def put(self, content: bytes) -> int:
        """Add a content, and return the number of its first block."""
        if not content:
            return _END
        start, count = len(self.chain), -(-len(content) // self._size)
        self.content += content.ljust(count * self._size, b"\0")
        self.chain += [*range(start + 1, start + count), _END]
        return start


def _add(entries: list[_Entry], parent: int, tree: Tree) -> None:
    """Add the entries of a storage. Each entry is the right sibling of the previous entry."""
    before = None
    for name, content in sorted(tree.items(), key=lambda item: (len(item[0]), item[0].upper())):
        index = len(entries)
        if isinstance(content, bytes):
            entries.append(_Entry(name, _STREAM, content))
        else:
            entries.append(_Entry(name, _STORAGE))
        if before is None:
            entries[parent].child = index
        else:
            entries[before].right = index
        before = index
        if not isinstance(content, bytes):
            _add(entries, index, content)


def _directory_entry(entry: _Entry) -> bytes:
    name = entry.name.encode("utf-16-le")
    return struct.pack(
        "<64sHBBIII16xI16xIQ",
        name,
        len(name) + 2,
        entry.kind,
        1,
        _FREE,
        entry.right,
        entry.child,
        0,
        entry.start,
        len(entry.content),
    )


@dataclass
class OutlookMail:
    """A mail of Outlook.

    Attributes:
        recipients: The name, address and kind of each recipient: 1 for To, 2 for Cc.
        attachments: The name and the content of each attachment. The content None is an attachment without a file.
    """

    subject: str
    body: str = ""
    html: bytes = b""
    headers: str = ""
    recipients: list[tuple[str, str, int]] = field(default_factory=list)
    attachments: list[tuple[str, bytes | None]] = field(default_factory=list)

    def __bytes__(self) -> bytes:
        """Return the bytes of the mail's file."""
        strings = {0x001A: "IPM.Note", 0x0037: self.subject, 0x1000: self.body, 0x007D: self.headers}
        tree = _properties(32, strings, {0x1013: self.html})
        tree["__nameid_version1.0"] = {}
        for number, (name, address, kind) in enumerate(self.recipients):
            tree[f"__recip_version1.0_#{number:08X}"] = _properties(
                8, {0x3001: name, 0x39FE: address}, numbers={0x0C15: kind}
            )
        for number, (name, content) in enumerate(self.attachments):
            tree[f"__attach_version1.0_#{number:08X}"] = _properties(
                8, {0x3707: name}, {0x3701: content or b""}, {0x3705: 1 if content is not None else 5}
            )
        return compound(tree)


def _properties(
    header: int,
    strings: Mapping[int, str],
    blobs: Mapping[int, bytes] = {},  # never changed
    numbers: Mapping[int, int] = {},  # never changed
) -> dict[str, bytes | Tree]:
    """Return the streams of properties, without empty ones (MS-OXMSG 2.4)."""
    tree: dict[str, bytes | Tree] = {}
    listed = bytes(header)
    for id_, text in strings.items():
        if text:
            tree[f"__substg1.0_{id_:04X}001F"] = content = text.encode("utf-16-le")
            listed += struct.pack("<HHIII", 0x001F, id_, 6, len(content) + 2, 0)
    for id_, content in blobs.items():
        if content:
            tree[f"__substg1.0_{id_:04X}0102"] = content
            listed += struct.pack("<HHIII", 0x0102, id_, 6, len(content), 0)
    for id_, number in numbers.items():
        listed += struct.pack("<HHIII", 0x0003, id_, 6, number, 0)
    tree["__properties_version1.0"] = listed
    return tree
