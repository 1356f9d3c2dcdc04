"""The contender for the lower bound of the cost: a raw ASGI application that only relays bytes with aiohttp.

A Python gateway cannot be cheaper, because the relay parses nothing and has no second process.
"""

import argparse
import asyncio
from typing import Any

import aiohttp
import uvicorn
import uvloop


class Relay:
    """Forwards each POST to a model server, and returns the response in pieces."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Relay one request."""
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        url = self._target + scope["path"]
        async with self._session.post(url, data=body, headers={"content-type": "application/json"}) as answer:
            media = answer.headers["content-type"].encode()
            await send(
                {"type": "http.response.start", "status": answer.status, "headers": [(b"content-type", media)]}
            )
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def main() -> None:
    """Serve until the process is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--target", required=True, help="for example http://127.0.0.1:9000")
    arguments = parser.parse_args()
    config = uvicorn.Config(
        Relay(arguments.target),
        port=arguments.port,
        http="httptools",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
