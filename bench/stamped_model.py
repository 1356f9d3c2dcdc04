"""A model server for the measurement of delays: each token is the time at which the server sends it.

Usage: python bench/stamped_model.py --port PORT --tokens COUNT --pace SECONDS
"""

import argparse
import asyncio
import contextlib
import re
import time

import uvloop
from causeway_testing.model_answers import DONE, STREAM, chunk, completion, sse

_DELTA = re.compile(rb'"delta":"([\d ]+)"')
_STREAMED = re.compile(rb'"stream": ?true')
_HEAD = f"HTTP/1.1 200 OK\r\ncontent-type: {STREAM}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
_MODELS = b'{"object":"list","data":[{"id":"stub","object":"model"}]}'


def stamps(piece: bytes) -> list[int]:
    """Return the times at which the tokens of a piece were sent, in nanoseconds of `time.perf_counter_ns`."""
    return [int(stamp) for text in _DELTA.findall(piece) for stamp in text.split()]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tokens: int, pace: float) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if head.startswith(b"get"):
        _write_whole(writer, _MODELS)
        return
    body = await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
    if not _STREAMED.search(body):
        [whole] = (step for step in completion("Yes.").body if isinstance(step, bytes))
        _write_whole(writer, whole)
        return
    writer.write(_HEAD)
    for _ in range(tokens):
        await asyncio.sleep(pace)
        _write_chunk(writer, sse(chunk({"content": f"{time.perf_counter_ns()} "})))
    _write_chunk(writer, sse(chunk({}, "stop")) + DONE)
    writer.write(b"0\r\n\r\n")


def _write_whole(writer: asyncio.StreamWriter, data: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(data)
    writer.write(head + data)


def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def main() -> None:
    """Serve until the process is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True, help="tokens of each answer")
    parser.add_argument("--pace", type=float, required=True, help="seconds between two tokens")
    arguments = parser.parse_args()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await _answer(reader, writer, arguments.tokens, arguments.pace)

    async def serve() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", arguments.port)
        await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve())


if __name__ == "__main__":
    main()
