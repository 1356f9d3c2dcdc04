"""Child processes that handle requests, for example documents to parse.

A request is a frame on stdin, and its response consists of frames on stdout. `servicekit.child_program` is the
other side. A frame is a length of four bytes and a body. The child process may fork for each request, and handle
the request in the fork. A random nonce follows each request, and the process repeats the nonce after the response.
By then, the fork has ended. So a malicious request that gains control of its fork cannot change the response to
another request.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Self

from servicekit.child_program import NONCE, PREFIX, framed

_START_SECONDS = 120.0
_END_SECONDS = 5.0  # from the end of a response to its nonce


class ChildNotStarted(Exception):
    """A child process did not start; ``__cause__`` is the reason."""


class ChildEnded(Exception):
    """A child process ended before its response was complete.

    Attributes:
        code: Its exit code, which is negative after a signal.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class Child:
    """A running child process.

    Attributes:
        is_complete: Whether the response has been read to its end. The caller sets this attribute.
    """

    def __init__(self, process: asyncio.subprocess.Process, max_frame_bytes: int) -> None:
        self._process = process
        self._max_frame_bytes = max_frame_bytes
        self._nonce = b""
        self.is_complete = False

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], max_frame_bytes: int) -> Self:
        """Start a process and wait for the frame with which it reports that it is ready.

        Raises:
            ChildNotStarted: The program cannot be executed, ends, or is not ready in time.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
                start_new_session=True,  # a process group, so that a process and its forks can be killed together
            )
        except OSError as error:
            raise ChildNotStarted(str(error)) from error
        child = cls(process, max_frame_bytes)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await child.receive()
        except (TimeoutError, ChildEnded, ValueError) as error:
            await child.kill()
            raise ChildNotStarted(str(error)) from error
        except BaseException:
            await child.kill()
            raise
        return child

    async def send(self, request: bytes) -> None:
        """Send a request.

        Raises:
            ChildEnded: The process has ended.
        """
        assert self._process.stdin is not None
        self._nonce = secrets.token_bytes(NONCE)
        self.is_complete = False
        try:
            self._process.stdin.write(framed(request) + self._nonce)
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise ChildEnded(await self._end()) from error

    async def receive(self) -> bytes:
        """Return the body of the next frame.

        Raises:
            ChildEnded: The process has ended.
            ValueError: The frame is too long.
        """
        assert self._process.stdout is not None
        try:
            size = int.from_bytes(await self._process.stdout.readexactly(PREFIX))
            if size > self._max_frame_bytes:
                raise ValueError(f"a frame of {size} bytes exceeds the limit of {self._max_frame_bytes} bytes")
            return await self._process.stdout.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ChildEnded(await self._end()) from error

    async def confirms_end(self) -> bool:
        """Return whether the response is complete, and only the nonce of the request follows it.

        The method waits up to `_END_SECONDS` for the nonce.
        """
        assert self._process.stdout is not None
        if not self.is_complete:
            return False
        try:
            async with asyncio.timeout(_END_SECONDS):
                return await self._process.stdout.readexactly(NONCE) == self._nonce
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            return False

    @property
    def has_ended(self) -> bool:
        """Whether the process is known to have ended."""
        assert self._process.stdout is not None
        return self._process.returncode is not None or self._process.stdout.at_eof()

    async def kill(self) -> None:
        """Kill the process with its forks."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._end()

    async def _end(self) -> int:
        """Close the pipes and wait for the process; return its exit code.

        `asyncio` waits for the end of the pipes, too. A pipe does not end while it contains unread data, or
        while another process has it open.
        """
        for pipe in (0, 1):
            if transport := self._process._transport.get_pipe_transport(pipe):  # type: ignore[attr-defined]  # it has no public name
                transport.close()
        return await self._process.wait()


class ChildProcesses:
    """Handles each request in a child process, so that no input can harm the service.

    The first request starts a process. Idle processes are reused. Their number never exceeds the highest number of
    concurrent requests. A process is killed with its forks if its response was not read to its end, or if it does
    not confirm the end with the nonce of the request.

    Args:
        command: The command that starts a process.
        environment: Variables of the processes, which see none of the service's settings or secrets.
        max_frame_bytes: Maximum length of a frame of a response in bytes.
        processes: Maximum number of concurrent requests; further requests wait.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        max_frame_bytes: int,
        processes: int = sys.maxsize,
    ) -> None:
        self._command = command
        self._environment = dict(environment or {})
        self._max_frame_bytes = max_frame_bytes
        self._free = asyncio.Semaphore(processes)
        self._idle: list[Child] = []

    @contextlib.asynccontextmanager
    async def reserve(self) -> AsyncGenerator[Child, None]:
        """Reserve a process for one request.

        The caller sets `Child.is_complete` after the last frame; otherwise the process is killed.

        Raises:
            ChildNotStarted: A process does not start.
        """
        async with self._free:
            child = await self._acquire()
            is_reusable = False
            try:
                try:
                    yield child
                finally:
                    is_reusable = await child.confirms_end()
            finally:
                if is_reusable:
                    self._idle.append(child)
                else:
                    await child.kill()

    async def _acquire(self) -> Child:
        """Return an idle process, or start one. An idle process that has ended is not an error."""
        while self._idle:
            child = self._idle.pop()
            if not child.has_ended:
                return child
            await child.kill()  # its forks may still run
        return await Child.start(self._command, self._environment, self._max_frame_bytes)

    async def call(self, request: bytes, seconds: float) -> bytes:
        """Send a request to a process; return the response, which is one frame.

        The time limit includes neither the wait for a process nor its start.

        Raises:
            ChildNotStarted: A process does not start.
            TimeoutError: The response did not arrive within ``seconds``.
            ChildEnded: The process ended without a response.
            ValueError: The response is longer than ``max_frame_bytes``.
        """
        async with self.reserve() as child:
            async with asyncio.timeout(seconds):
                await child.send(request)
                response = await child.receive()
            child.is_complete = True
        return response

    async def aclose(self) -> None:
        """Kill the idle processes. Reserved processes continue, so call this method after the last request."""
        idle, self._idle = self._idle, []
        for child in idle:
            await child.kill()
