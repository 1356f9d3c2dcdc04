"""Records of usage and of findings: from the request to the stream in NATS and to the command line."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from causeway_testing.model_answers import stream
from servicekit import keys, nats

EMAIL = {"output": {"regex": {"regex": ["email"], "action": "redact"}}}


async def usage(data: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return the output of ``causeway usage --json``."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("causeway")),
        "usage",
        "--json",
        "--data-dir",
        str(data),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


async def audit_records(stack: Any) -> list[dict[str, Any]]:
    """Return the records of the audit stream."""
    client = await nats.connect(stack.description()["nats_url"], "operator")
    try:
        jetstream = client.jetstream()
        count = (await jetstream.stream_info(keys.AUDIT_STREAM)).state.messages
        raw = [(await jetstream.get_msg(keys.AUDIT_STREAM, number + 1)) for number in range(count)]
        return [json.loads(message.data or b"") | {"subject": message.subject} for message in raw]
    finally:
        await client.close()


async def test_records_survive_the_broker(stack: Any, model: Any) -> None:
    """During an outage of the broker, requests are answered without delay. Afterwards each request is recorded
    once.
    """
    for _ in range(3):
        assert (await stack.http.post("/chat", json=stack.question())).status_code == 200
    stack.kill("nats")
    for _ in range(4):
        assert (await stack.http.post("/chat", json=stack.question())).status_code == 200
    await stack.wait_until_ready()
    for _ in range(100):
        rows = [row for row in await usage(stack.data, "--by", "route,model") if row["route"] == "/chat"]
        if sum(row["requests"] for row in rows) >= 7:
            break
        await asyncio.sleep(0.2)
    [row] = rows
    assert (row["requests"], row["failed"], row["model"]) == (7, 0, "stub")
    assert row["output_tokens"] >= 7 * 100
    assert row["input_tokens"] > 0


async def test_a_redaction_is_audited(stack: Any, model: Any) -> None:
    """The audit record has the tenant, the detector, the verdict, the trace and the span, but not the text."""
    model.script(stream(["Write to ", "ann@exam", "ple.com", " please."]))
    async with stack.http.stream("POST", "/chat/stream", json=stack.question(detectors=EMAIL)) as response:
        assert response.status_code == 200
        assert b"ann@example.com" not in await response.aread()
    for _ in range(50):
        if found := await audit_records(stack):
            break
        await asyncio.sleep(0.1)
    [record] = found
    assert record["subject"] == keys.audit_subject("local", "regex", "redact")
    assert record["trace_id"] == response.headers["x-trace-id"]
    assert "ann@example.com" not in json.dumps(record)
    assert record["end"] - record["start"] == len("ann@example.com")
