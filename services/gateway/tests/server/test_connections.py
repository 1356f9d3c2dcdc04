import asyncio
from dataclasses import dataclass, field

import pytest
from causeway_testing.servers import eventually
from gateway.server.connections import Connections, Place
from gateway.server.http_protocol import HttpLimits
from gateway.server.http_server import HttpServer, listen
from gateway.server.metrics import Metrics


@dataclass(eq=False)
class FakeConnection:
    closed: list[str] = field(default_factory=list)
    name: str = ""

    def close(self) -> None:
        self.closed.append(self.name)


def test_the_longest_idle_connection_is_replaced() -> None:
    """A connection above the limit replaces the longest idle one. Busy connections stay open."""
    connections, closed = Connections(2, reserve=1), list[str]()
    first, second, third = (FakeConnection(closed, name) for name in ("first", "second", "third"))
    assert [connections.opened(first), connections.opened(second)] == [Place.OPEN, Place.OPEN]
    connections.busy(first)
    assert connections.opened(third) is Place.OPEN
    assert closed == ["second"]
    connections.idle(first)
    assert connections.opened(FakeConnection(closed)) is Place.OPEN
    assert closed == ["second", "third"]
    assert (len(connections), connections.shed) == (2, {"idle": 2, "refused": 0})


def test_reserved_places_without_idle_connections() -> None:
    """Reserved places are used while no connection is idle. Further connections are refused until one ends."""
    connections = Connections(1, reserve=1)
    busy, reserved = FakeConnection(), FakeConnection()
    connections.opened(busy)
    connections.busy(busy)
    assert connections.opened(reserved) is Place.RESERVED
    connections.busy(reserved)
    assert connections.opened(FakeConnection()) is Place.REFUSED
    connections.closed(reserved)
    connections.closed(busy)
    assert connections.opened(FakeConnection()) is Place.OPEN
    assert connections.shed == {"idle": 0, "refused": 2}


def test_metrics_show_connections() -> None:
    """The metrics show the open connections and the connections that were closed at the limit."""
    metrics, connections = Metrics(), Connections(1)
    metrics.register_connections(connections)
    connections.opened(FakeConnection())
    connections.opened(FakeConnection())
    text = metrics.text().decode()
    assert "causeway_http_connections 1.0" in text
    assert 'causeway_http_connections_shed_total{causeway_reason="idle"} 1.0' in text


async def ok(scope: object, receive: object, send: object) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": b"ok"})  # type: ignore[operator]


@pytest.mark.parametrize("idle", [True, False])
async def test_the_health_route_works_at_the_limit(idle: bool) -> None:
    """The health route works at the limit of connections, whether these are idle or busy."""
    connections = Connections(5, reserve=2)
    with listen("127.0.0.1", 0) as listener:
        server = HttpServer(ok, 1, HttpLimits(), connections)
        serving = asyncio.create_task(server.serve([listener]))
        port = listener.getsockname()[1]
        held = []
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            if not idle:
                writer.write(b"GET / HTTP/1.1\r\n")
                await writer.drain()
            held.append((reader, writer))
        await eventually(lambda: len(connections) == 5 and len(connections._idle) == (5 if idle else 0))
        statuses = {}
        for path in ("/health", "/v1/models"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET %b HTTP/1.1\r\nhost: g\r\n\r\n" % path.encode())
            statuses[path] = int((await reader.readline()).split()[1])
            writer.close()
        assert statuses == {"/health": 200, "/v1/models": 200 if idle else 503}
        for _, writer in held:
            writer.close()
        server.should_exit = server.force_exit = True
        await serving
