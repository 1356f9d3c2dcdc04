"""No proxy sends the body of an upgrade request on as the next request."""

import asyncio
import itertools
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAUSES = (0.0, 0.0002, 0.0005, 0.001)
"""The seconds between head and body. The body must arrive separately, and before the gateway sends its answer."""
VICTIMS = 4
"""The concurrent requests of each tenant after each attack."""
INDEXES = 4
"""The number of indexes that each tenant's administrator reads."""

# The configurations of docs/proxies.md, and variants that forward upgrade requests, as installations with
# WebSockets do, or that share connections between more clients. Caddy forwards upgrade requests by default. Envoy
# holds their bodies until the upgrade is accepted, which never happens.
CONFIGURATIONS = {
    "nginx": ("nginx", []),
    "nginx-with-websockets": (
        "nginx",
        [
            (
                'proxy_set_header Connection "";',
                'proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";',
            )
        ],
    ),
    "HAProxy": ("HAProxy", []),
    "HAProxy-with-shared-connections": ("HAProxy", [("http-reuse safe", "http-reuse always")]),
    "Caddy": ("Caddy", []),
    "Envoy": ("Envoy", []),
}


def _attack(hidden: bytes, upgrade: str, *headers: str) -> tuple[bytes, bytes]:
    """Return the head and the body of an upgrade request whose body is the beginning of another request."""
    lines = [
        "POST /retrieve HTTP/1.1",
        "Host: gateway",
        "Connection: Upgrade",
        f"Upgrade: {upgrade}",
        "Content-Type: application/json",
        *headers,
        f"Content-Length: {len(hidden)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n", hidden


async def _send(port: int, head: bytes, body: bytes, pause: float) -> bytes:
    """Send a request, return the first bytes of the proxy's answer, and close the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head)
        await asyncio.sleep(pause)
        writer.write(body)
        async with asyncio.timeout(60):
            return await reader.read(65536)
    finally:
        writer.close()


@pytest.mark.parametrize("configuration", list(CONFIGURATIONS))
async def test_a_body_is_never_the_next_request(platform: Any, start_proxy: Any, configuration: str) -> None:
    """A hidden request in a body neither deletes an index, nor gets another tenant's answer, nor reaches a denied
    path. Meanwhile both tenants' administrators use the same pooled connections.
    """
    proxy, changes = CONFIGURATIONS[configuration]
    async with start_proxy(proxy, *changes) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        names = {tenant: [f"{tenant}-{number}" for number in range(INDEXES)] for tenant in platform.keys}
        for tenant, own in names.items():
            for name in own:
                created = await http.post("/indexes", json={"index_name": name}, headers=platform.headers(tenant))
                assert created.status_code in (200, 201, 409), created.text
        south = platform.keys["south"]
        hidden = [
            b"DELETE /indexes/north-0 HTTP/1.1\r\nX-Rest: ",
            b"DELETE /indexes/north-1 HTTP/1.1\r\nHost: gateway\r\nX-Rest: ",
            f"GET /indexes HTTP/1.1\r\nHost: gateway\r\nApi-Key: {south}\r\n\r\n".encode(),
            b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n",
        ]
        attacks = [
            _attack(body, upgrade, *credentials)
            for body in hidden
            for upgrade in ("websocket", "h2c")
            for credentials in ([], [f"Api-Key: {south}"])
        ]
        answers: list[bytes] = []
        wrong_answers: list[str] = []
        for number, (pause, attack) in enumerate(itertools.product(PAUSES, attacks)):
            answers.append(await _send(port, *attack, pause))
            reads = [(tenant, names[tenant][number % INDEXES]) for tenant in names for _ in range(VICTIMS)]
            got = await asyncio.gather(
                *(http.get(f"/indexes/{name}", headers=platform.headers(tenant)) for tenant, name in reads)
            )
            wrong_answers += [
                f"{number}: {tenant} requested {name}, got {answer.status_code} {answer.text[:200]}"
                for (tenant, name), answer in zip(reads, got, strict=True)
                if answer.status_code != 200 or f'"index_name":"{name}"' not in answer.text
            ]
        assert wrong_answers == []
        assert (await http.get("/metrics")).status_code == 403
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{platform.port}") as http:
        for tenant, own in names.items():
            indexes = (await http.get("/indexes", headers=platform.headers(tenant))).json()
            assert set(own) <= set(indexes)
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 4"), answer
        assert answer.count(b"HTTP/1.1") == 1, answer
        assert b"# HELP" not in answer
