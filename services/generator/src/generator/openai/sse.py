"""A parser of server-sent events for the streams of model servers.

https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

import codecs

from generator.openai.errors import bad_answer

_DATA = b"data"
_LF, _CR = b"\n\r"
_LINE_ENDS = (_LF, _CR)


class SseParser:
    r"""Extracts the payloads of the events from a byte stream, which may arrive in pieces of any size.

    Lines end with CR LF, LF or CR. The parser ignores comments and the fields ``event``, ``id`` and ``retry``. It
    joins several ``data`` lines of one event with LF.

    Args:
        max_bytes: The maximum size of an event.

    >>> parser = SseParser(max_bytes=1024)
    >>> parser.feed(b'data: {"n": 1}\n')  # the blank line that ends the event is missing
    []
    >>> parser.feed(b": a comment\n\ndata: [DO")
    [b'{"n": 1}']
    >>> parser.feed(b"NE]\n\n")
    [b'[DONE]']
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line: list[bytes] = []  # pieces of an unfinished line
        self._data: list[bytes] = []  # data lines of an unfinished event
        self._line_size = 0
        self._data_size = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads of the events that end in these bytes.

        Raises:
            Unavailable: An event is larger than ``max_bytes``.
        """
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == _LF:
                data = data[1:]
        if not data:
            return []
        lines = data.splitlines()
        if data[-1] in _LINE_ENDS:
            rest = b""
            self._after_cr = data[-1] == _CR
        else:
            rest = lines.pop()
        payloads: list[bytes] = []
        for line in lines:
            if self._line:
                self._line.append(line)
                line = b"".join(self._line)
                self._line.clear()
                self._line_size = 0
            self._process_line(line, payloads)
        if rest:
            self._line.append(rest)
            self._line_size += len(rest)
            self._check()
        return payloads

    def close(self) -> list[bytes]:
        """Return the payload of the last event if the blank line after it is missing; otherwise an empty list.

        Call it once, at the end of the stream.
        """
        payloads: list[bytes] = []
        self._process_line(b"".join(self._line), payloads)
        self._process_line(b"", payloads)
        self._line.clear()
        return payloads

    def _process_line(self, line: bytes, payloads: list[bytes]) -> None:
        """Process one line. A blank line ends the event and appends its payload to ``payloads``."""
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line:
            if self._data:
                payload = b"\n".join(self._data) if len(self._data) > 1 else self._data[0]
                if payload:  # some servers send empty payloads to keep the connection open
                    payloads.append(payload)
                self._data.clear()
                self._data_size = 0
            return
        name, _, value = line.partition(b":")
        if name == _DATA:
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._data_size += len(value)
            self._check()

    def _check(self) -> None:
        if self._line_size + self._data_size > self._max_bytes:
            raise bad_answer(f"sent an event of more than {self._max_bytes} bytes")
