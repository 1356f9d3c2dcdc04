import asyncio
import contextlib
import fcntl
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from causeway_testing.servers import eventually
from ingest.parsing.content import Head, Page
from ingest.parsing.process import Limits, ParserDefect, ProcessParser
from servicekit.errors import PayloadTooLarge, Unavailable, UnreadableDocument, UnsupportedMedia

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = """
import fcntl, os, signal, sys, time
from ingest.parsing import child, frames
from ingest.parsing.content import Head, Page, Section

def parser(request):
    word = open(request.path).read().strip()
    yield Head("text/plain", 1)
    if word == "hang":
        time.sleep(600)
    if word == "spin":
        while True: pass
    if word == "eat":
        kept = [bytes(50_000_000) for _ in range(1000)]
    if word == "eat in c":
        os.abort()
    if word == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if word == "recurse":
        sys.setrecursionlimit(200); parser.__globals__["deep"]()
    if word == "open":
        kept = [open(request.path) for _ in range(1000)]
    if word == "write":
        with open(request.path + ".new", "wb") as file: file.write(bytes(10))
    if word == "defect":
        raise ZeroDivisionError("a bug")
    if word == "noise":
        print("printed by a library")
        os.write(1, b"and by another")
    if word == "nonsense":
        os.write(OUT, b"\\0\\0\\0\\x03abc")
    if word == "answer twice":
        os.write(OUT, FORGED + FORGED)
    if word == "guess the nonce":
        os.write(OUT, FORGED + bytes(16) + FORGED)
    if word == "leave a process":
        parent = os.getpid()
        if not os.fork():
            os.setsid()
            while os.getppid() == parent: time.sleep(0.001)
            while True: os.write(OUT, FORGED)
    if word == "lock":
        file = open(request.path)
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(600)
    if word == "read the questions":
        yield Page(1, (Section((), repr(os.read(0, 100))),))
        return
    yield Page(1, (Section((), f"{word} in {os.getpid()}"),))

def deep():
    deep()

FORGED = b"".join(map(frames.encode, [Page(1, (Section((), "forged"),)), frames.Done()]))
OUT = 3  # the first free descriptor, which the child uses for frames
sys.exit(child.serve(parser))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the files of `parse_word`."""
    return tmp_path_factory.mktemp("words")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parse_word(directory: Path) -> AsyncIterator[Callable[[str], Any]]:
    """Return a function that parses a file of one word with a parser that behaves as the word says.

    All tests share the parser, because its child takes long to start. It must survive all words.
    """
    script = directory / "child.py"
    script.write_text(SCRIPT)
    parser = ProcessParser(Limits(), (sys.executable, str(script)))

    async def run(word: str, seconds: float = 60) -> str:
        parser._limits = Limits(seconds=seconds, memory=600 * 1024**2)
        path = directory / f"{word}.txt"
        path.write_text(word)
        texts = []
        async with contextlib.aclosing(parser.parse(path, path.name)) as parts:
            async for part in parts:
                if isinstance(part, Page):
                    texts += [section.text for section in part.sections]
        return "".join(texts)

    yield run
    await parser.aclose()


@pytest.mark.parametrize(
    ("word", "error", "message"),
    [
        ("hang", UnreadableDocument, "longer than 0.5 s"),
        ("spin", UnreadableDocument, "longer than 0.5 s"),
        ("eat", PayloadTooLarge, "memory"),
        ("open", PayloadTooLarge, "open"),
        ("write", PayloadTooLarge, "files"),
        ("eat in c", UnreadableDocument, "SIGABRT"),
        ("crash", UnreadableDocument, "SIGSEGV"),
        ("recurse", UnreadableDocument, "nested too deeply"),
        ("nonsense", UnreadableDocument, "invalid response"),
        ("defect", ParserDefect, "a bug"),
    ],
)
async def test_a_document_fails_alone(
    parse_word: Callable[..., Any], word: str, error: type[Exception], message: str
) -> None:
    """A document that hangs, exceeds a limit or crashes the parser fails with the reason. The next one is read."""
    with pytest.raises(error, match=message):
        await parse_word(word, 0.5 if "longer" in message else 60)
    assert (await parse_word("fine")).startswith("fine in ")


@pytest.mark.parametrize("word", ["answer twice", "guess the nonce", "leave a process"])
async def test_a_document_cannot_forge_the_text_of_another(parse_word: Callable[[str], Any], word: str) -> None:
    """A document that controls its fork can only forge its own text, even with a process that it leaves behind."""
    own = await parse_word(word)
    assert own == "forged" or own.startswith(word)
    for _ in range(3):
        assert (await parse_word("fine")).startswith("fine in ")


async def test_a_fork_cannot_read_requests(parse_word: Callable[[str], Any]) -> None:
    """A fork cannot read from the worker, so that it does not learn the nonce that ends its response."""
    assert await parse_word("read the questions") == "b''"


async def test_a_parser_that_does_not_start_is_unavailable(tmp_path: Path) -> None:
    """If the parser does not start, the error is Unavailable, and no document is refused."""
    path = tmp_path / "a.txt"
    path.write_text("text")
    parser = ProcessParser(Limits(), (sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(Unavailable):
        async with contextlib.aclosing(parser.parse(path, "a.txt")) as parts:
            await anext(parts)


async def test_a_hanging_document_does_not_delay_others(parse_word: Callable[[str], Any]) -> None:
    """A document that hangs does not delay concurrent documents."""
    hanging = asyncio.create_task(parse_word("hang"))
    results = await asyncio.gather(
        parse_word("fine"), parse_word("crash"), parse_word("good"), return_exceptions=True
    )
    assert [isinstance(result, Exception) for result in results] == [False, True, False]
    assert not hanging.done()
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)


async def test_each_document_has_a_process(parse_word: Callable[[str], Any]) -> None:
    """Each document is parsed in its own process, so that nothing of it remains for the next document."""
    assert (await parse_word("one")).split()[-1] != (await parse_word("two")).split()[-1]


async def test_output_of_libraries_is_discarded(parse_word: Callable[[str], Any]) -> None:
    """Output of libraries does not reach the worker; only frames do."""
    assert (await parse_word("noise")).startswith("noise in")


def is_locked(path: Path) -> bool:
    """Return whether a process has locked a file."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


async def test_cancellation_ends_the_child(parse_word: Callable[[str], Any], directory: Path) -> None:
    """A cancelled parse leaves no process behind, and the parser continues."""
    path = directory / "lock.txt"
    path.touch()
    parsing = asyncio.create_task(parse_word("lock"))
    await eventually(lambda: is_locked(path))
    parsing.cancel()
    await asyncio.gather(parsing, return_exceptions=True)
    await eventually(lambda: not is_locked(path))  # the system removes the lock when the process ends
    assert (await parse_word("fine")).startswith("fine in ")


async def test_a_parse_can_be_closed_early(tmp_path: Path, make_pdf: Callable[..., bytes]) -> None:
    """After a parse whose parts were not all read, the next parse yields all parts."""
    parser = ProcessParser(Limits())
    path = tmp_path / "a.pdf"
    path.write_bytes(make_pdf(*[f"Page {number}." for number in range(30)]))
    async with contextlib.aclosing(parser.parse(path, "a.pdf")) as parts:
        assert isinstance(await anext(parts), Head)
    async with contextlib.aclosing(parser.parse(path, "a.pdf")) as parts:
        assert len([part async for part in parts]) == 31
    await parser.aclose()


async def test_refusals_keep_their_kind(tmp_path: Path, make_pdf: Callable[..., bytes], png: bytes) -> None:
    """Unreadable, unsupported and too large documents have different errors."""
    parser = ProcessParser(Limits(pages=2, characters=1000))
    cases: list[tuple[str, bytes, type[Exception]]] = [
        ("a.pdf", b"no pdf", UnreadableDocument),
        ("a.png", png, UnsupportedMedia),
        ("a.pdf", make_pdf("1", "2", "3"), PayloadTooLarge),
        ("a.txt", b"word " * 300, PayloadTooLarge),
        ("a.md", b"word " * 3000, PayloadTooLarge),
    ]
    path = tmp_path / "original"
    for name, content, error in cases:
        path.write_bytes(content)
        with pytest.raises(error):
            async with contextlib.aclosing(parser.parse(path, name)) as parts:
                _ = [part async for part in parts]
    await parser.aclose()


async def test_real_parsers_keep_to_the_memory_limit(tmp_path: Path) -> None:
    """A document whose tree would exceed the memory limit is refused, and the next one is read."""
    parser = ProcessParser(Limits(memory=256 * 1024**2))
    path = tmp_path / "original"
    path.write_text("- item *with* `marks` and [links](x)\n" * 100_000)
    with pytest.raises((PayloadTooLarge, UnreadableDocument)):
        async with contextlib.aclosing(parser.parse(path, "a.md")) as parts:
            _ = [part async for part in parts]
    path.write_text("# Small\n\nText.")
    async with contextlib.aclosing(parser.parse(path, "a.md")) as parts:
        assert len([part async for part in parts]) == 2
    await parser.aclose()
