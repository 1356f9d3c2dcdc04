"""Metrics of NATS' streams and queues, measured periodically."""

import asyncio
import contextlib
import ssl
from collections.abc import Collection
from typing import Any

import nats.errors
import nats.js.errors
import structlog
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from servicekit import keys, metrics, response_keys
from servicekit.record_streams import RECORD_STREAMS, age_of, horizon

_log = structlog.get_logger(__name__)

INGEST_STREAMS = (
    keys.INGEST_STREAM,
    keys.INGEST_DEAD_STREAM,
    f"KV_{keys.JOBS_BUCKET}",
    f"OBJ_{keys.ORIGINALS_BUCKET}",
    f"KV_{keys.PICTURES_BUCKET}",
)
"""The streams that a worker measures."""
STREAMS = (
    *INGEST_STREAMS,
    *RECORD_STREAMS,
    f"KV_{keys.HISTORY_BUCKET}",
    f"KV_{keys.API_KEYS_BUCKET}",
    f"KV_{response_keys.RESPONSES_BUCKET}",
    f"OBJ_{response_keys.LARGE_RESPONSES_BUCKET}",
    response_keys.RESPONSE_LOG_STREAM,
    response_keys.RESPONSE_JOB_STREAM,
)
"""The streams that the gateway measures."""


class _Gauge(dict[str, float]):
    """The values of a gauge by its only label."""

    def __init__(self, label: str) -> None:
        self._label = label

    def labelled(self) -> list[tuple[float, dict[str, str]]]:
        return [(value, {self._label: name}) for name, value in self.items()]


class StreamLevels:
    """Measures sizes and limits of streams, depth and age of the ingest queue, and the server certificate's expiry.

    Each gateway and each worker exports these metrics with the same labels, so alerts and graphs use the greatest
    value (``max by``). While NATS is unavailable, the metrics have no values.

    Args:
        client: A connection.
        streams: Names of the streams; the lanes of the ingest queue are always measured.
        interval: Seconds between measurements.
    """

    def __init__(self, client: Client, streams: Collection[str], *, interval: float = 10.0) -> None:
        self._client = client
        self._jetstream = client.jetstream(timeout=10)
        self._streams = streams
        self._interval = interval
        self._depth, self._age = _Gauge("lane"), _Gauge("lane")
        metrics.observed(__name__, "causeway.ingest.queue.depth", "", "Jobs of a lane.", self._depth.labelled)
        metrics.observed(
            __name__, "causeway.ingest.queue.age", "s", "Age of a lane's oldest job.", self._age.labelled
        )
        self._messages, self._size, self._limit, self._horizon, self._max_age = (
            _Gauge("causeway.stream") for _ in range(5)
        )
        metrics.observed(
            __name__,
            "causeway.nats.stream.messages",
            "",
            "Messages of a stream.",
            self._messages.labelled,
        )
        metrics.observed(__name__, "causeway.nats.stream.size", "By", "Bytes of a stream.", self._size.labelled)
        metrics.observed(
            __name__, "causeway.nats.stream.limit", "By", "Maximum bytes of a stream.", self._limit.labelled
        )
        metrics.observed(
            __name__,
            "causeway.records.horizon",
            "s",
            "Seconds for which a stream keeps records at the current rate.",
            self._horizon.labelled,
        )
        metrics.observed(
            __name__,
            "causeway.records.max_age",
            "s",
            "Seconds after which a stream drops a record in any case.",
            self._max_age.labelled,
        )
        self._certificate: float | None = None
        metrics.observed(
            __name__,
            "causeway.nats.certificate.not_after",
            "s",
            "Expiry of the certificate of NATS, in seconds since 1970.",
            lambda: [] if self._certificate is None else [(self._certificate, {})],
        )
        self._all = (self._depth, self._age, self._messages, self._size, self._limit, self._horizon, self._max_age)

    async def watch(self) -> None:
        """Measure until cancelled."""
        try:
            while True:
                try:
                    await self._measure()
                except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError) as error:
                    _log.debug("cannot measure the streams", error=str(error))
                    self._clear()
                await asyncio.sleep(self._interval)
        finally:
            self._clear()

    def _clear(self) -> None:
        for gauge in self._all:
            gauge.clear()

    async def _measure(self) -> None:
        for lane in range(keys.INGEST_LANES):
            await self._measure_lane(lane)
        for name in self._streams:
            with contextlib.suppress(NotFoundError):  # another process creates it later
                await self._measure_stream(name)
        self._measure_certificate()

    async def _measure_lane(self, lane: int) -> None:
        consumer = await self._jetstream.consumer_info(keys.INGEST_STREAM, keys.ingest_consumer(lane))
        self._depth[str(lane)] = (consumer.num_pending or 0) + (consumer.num_ack_pending or 0)
        self._age[str(lane)] = await age_of(self._jetstream, keys.INGEST_STREAM, 1, keys.ingest_lane(lane))

    async def _measure_stream(self, name: str) -> None:
        info = await self._jetstream.stream_info(name)
        self._messages[name], self._size[name] = info.state.messages, info.state.bytes
        limit = info.config.max_bytes or -1
        if limit > 0:
            self._limit[name] = limit
        if name in RECORD_STREAMS and limit > 0:
            self._max_age[name] = info.config.max_age or float("inf")
            self._horizon[name] = await horizon(self._jetstream, info)

    def _measure_certificate(self) -> None:
        transport: Any = self._client._transport  # the library has no public access to it
        tls = transport._io_writer.get_extra_info("ssl_object") if transport is not None else None
        if tls is not None:
            self._certificate = ssl.cert_time_to_seconds(str(tls.getpeercert()["notAfter"]))
