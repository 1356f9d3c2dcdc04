import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from opentelemetry import context
from servicekit import logs, telemetry
from servicekit.settings import ServiceSettings

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore the process's logging after the test."""
    root = logging.getLogger()
    handlers, level, config = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.configure(**config)


@pytest.fixture
def trace() -> Iterator[None]:
    token = context.attach(telemetry.extract({"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}))
    yield
    context.detach(token)


def configure(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **settings: Any) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("book", ServiceSettings(**settings))


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that gives the log so far as JSON objects, without a terminal."""
    stream = io.StringIO()
    configure(monkeypatch, stream, log_level="debug")
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def _logger(name: str) -> Any:
    return structlog.get_logger(name)


def _break() -> None:
    raise ValueError("broken")


def test_a_line_has_event_time_logger_and_trace(lines: Any, trace: None) -> None:
    """Without a terminal, each event is one JSON object with time, level, logger, service and trace."""
    _logger("book.pages").info("turned", page=7, name="Übersicht\n2")
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "turned",
        "page": 7,
        "name": "Übersicht\n2",
        "level": "info",
        "logger": "book.pages",
        "service": "book",
        "trace_id": TRACE,
    }


def test_logs_of_libraries_look_the_same(lines: Any, trace: None) -> None:
    """Logs of libraries that use the standard library have the same form, with their extra members."""
    logging.getLogger("somebody.else").warning("%d of %s", 3, "four", extra={"host": "h"})
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "3 of four",
        "host": "h",
        "level": "warning",
        "logger": "somebody.else",
        "service": "book",
        "trace_id": TRACE,
    }


def test_a_caller_of_grpc_that_left_is_no_error(lines: Any) -> None:
    """The error of gRPC about a response that it cannot send becomes a warning without a stack trace. Its other
    errors do not change.
    """
    logger = logging.getLogger("grpc._cython.cygrpc")
    for message in ("ExecuteBatchError raised in core by servicer method [%s]", "Unexpected error [%s]"):
        try:
            _break()
        except ValueError:
            logger.exception(message, "/retriever/Retrieve")
    assert [(line["level"], "exception" in line) for line in lines()] == [("warning", False), ("error", True)]


def test_outside_of_a_trace_there_is_no_id(lines: Any) -> None:
    """Without a trace the line has no trace id, because zeros would look like one."""
    _logger("book").info("begun")
    assert "trace_id" not in lines()[0]


def test_an_exception_is_one_line_with_its_causes(lines: Any) -> None:
    """A stack with its causes is a member of the line, for every logger."""
    try:
        try:
            _break()
        except ValueError as error:
            raise OSError("cannot go on") from error
    except OSError as error:
        _logger("book").error("failed", exc_info=error)
        logging.getLogger("somebody.else").exception("failed, too")
    ours, theirs = lines()
    for line in (ours, theirs):
        assert line["level"] == "error"
        assert "ValueError: broken" in line["exception"]
        assert "OSError: cannot go on" in line["exception"]


def test_warnings_are_logged(lines: Any) -> None:
    """A library's warning is an ordinary log line."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert lines()[0]["logger"] == "py.warnings"
    assert "DeprecationWarning: old" in lines()[0]["event"]


def test_values_that_are_not_json_are_logged(lines: Any) -> None:
    """A value that is not JSON, or half a surrogate pair, does not lose the line."""
    _logger("book").info("odd", path=ValueError("x"), text="\ud800", raw=b"\xff")
    assert lines()[0]["path"] == "ValueError('x')"


@pytest.mark.parametrize(("level", "heard"), [("DEBUG", 4), ("info", 3), ("WARNING", 2), ("error", 1)])
def test_lines_below_the_level_are_not_logged(monkeypatch: pytest.MonkeyPatch, level: str, heard: int) -> None:
    """Lines below the level are not logged, for the platform and for libraries."""
    stream = io.StringIO()
    configure(monkeypatch, stream, log_level=level)
    for log in (_logger("book"), logging.getLogger("somebody.else")):
        for name in ("debug", "info", "warning", "error"):
            getattr(log, name)("said")
    assert len(stream.getvalue().splitlines()) == 2 * heard


@pytest.mark.parametrize(
    ("stream", "log_format", "json_lines", "colours"),
    [
        (io.StringIO, "auto", True, False),
        (Terminal, "auto", False, True),
        (Terminal, "json", True, False),
        (io.StringIO, "console", False, False),
    ],
)
def test_the_format_depends_on_the_output(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], log_format: str, json_lines: bool, colours: bool
) -> None:
    """A terminal gets lines for people, other outputs get JSON, unless a setting says otherwise. Only a terminal
    gets colours.
    """
    out = stream()
    configure(monkeypatch, out, log_format=log_format)
    try:
        _break()
    except ValueError:
        _logger("book").exception("failed")
    text = out.getvalue()
    assert ("\x1b[" in text) is colours
    assert text.startswith("{") is json_lines
    assert "ValueError: broken" in text


def test_values_of_variables_are_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack on a terminal shows the code and no values of variables, because they may be secret."""
    secret = "-".join(["s3", "cr3t"])

    def use(token: str) -> None:
        raise ValueError("refused")

    out = Terminal()
    configure(monkeypatch, out)
    try:
        use(secret)
    except ValueError:
        _logger("book").exception("failed")
    assert "refused" in out.getvalue()
    assert secret not in out.getvalue()


def test_a_terminal_gets_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's path or name, and the message of an error, control no terminal and forge no line."""
    hostile = "a\x1b[2J\r\nb\x00\u202e\u2028é"
    out = io.StringIO()
    configure(monkeypatch, out, log_format="console")
    _logger("book").info("read", path=hostile)
    logging.getLogger("a.library").warning(hostile)
    try:
        raise ValueError(hostile)
    except ValueError:
        _logger("book").exception("failed")
    text = out.getvalue()
    assert all(line.isprintable() for line in text.split("\n"))
    escaped = r"a\x1b[2J\r\nb\x00\u202e\u2028é"
    assert text.count(escaped) == 2
    assert [escaped in line for line in text.split("\n")[:2]] == [True, True]


def test_configuring_twice_logs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two configurations the process has one handler."""
    configure(monkeypatch, io.StringIO())
    out = io.StringIO()
    configure(monkeypatch, out)
    logging.getLogger("somebody.else").error("once")
    assert len(out.getvalue().splitlines()) == 1
    assert len(logging.getLogger().handlers) == 1


def test_a_command_logs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither output stream gets a line during the command. Afterwards the earlier logging is restored."""
    before = structlog.get_config()
    with logs.logging_disabled():
        structlog.get_logger("nats").warning("nats", error="refused")
    assert capfd.readouterr() == ("", "")
    assert structlog.get_config() == before
