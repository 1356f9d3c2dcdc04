import json

from gateway.routes.spool import Spool, json_list


async def sent_bytes(spool: Spool, parts: list[bytes | int]) -> bytes:
    return b"".join([piece async for piece in spool.send(parts)])


async def test_records_are_read_in_any_order() -> None:
    """Records are sent in any order as JSON arrays of known length."""
    spool = Spool()
    for number in range(5):
        spool.add(b'"%d"' % number)
    parts = [b'{"a":', *json_list([4, 0]), b',"b":', *json_list([]), b"}"]
    length = spool.length(parts)
    sent = await sent_bytes(spool, parts)
    assert json.loads(sent) == {"a": ["4", "0"], "b": []}
    assert length == len(sent)


async def test_large_contents_are_read_in_pieces() -> None:
    """Large contents are sent in several pieces, byte for byte."""
    spool = Spool()
    records = [b"%d" % (number % 10) * 30_000 for number in range(60)]
    for record in records:
        spool.add(record)
    pieces = [piece async for piece in spool.send(list(range(60)))]
    assert b"".join(pieces) == b"".join(records)
    assert len(pieces) > 10


async def test_a_failed_spool_is_closed() -> None:
    """A spool is closed when its block fails."""
    try:
        with Spool() as spool:
            spool.add(b"x" * 2_000_000)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert spool._file.closed
