"""A running stack exports the metrics that the alert rules and the panels of the dashboards use."""

from pathlib import Path
from typing import Any

import httpx
from causeway_testing.model_server import ModelServer
from causeway_testing.servers import free_ports
from monitoring import FOREIGN, expressions, metrics_of
from prometheus_client.parser import text_string_to_metric_families

# These metrics exist only with TLS. The tests of servicekit and of the Qdrant store cover them.
CERTIFICATES = {f"causeway_{kind}_certificate_not_after_seconds" for kind in ("tls", "nats", "qdrant")}
PRICES = "currency: EUR\nmodels: {stub: {input: 1, output: 1}}\n"


async def sample_names(ports: list[int]) -> dict[str, set[str]]:
    """Return the names of all samples of the metrics at each port."""
    found = {}
    async with httpx.AsyncClient() as http:
        for port in ports:
            text = (await http.get(f"http://127.0.0.1:{port}/metrics")).raise_for_status().text
            found[port] = {s.name for family in text_string_to_metric_families(text) for s in family.samples}
    return {str(port): names for port, names in found.items()}


async def test_every_metric_of_a_rule_or_panel_is_exported(
    tmp_path: Path, model: ModelServer, start_stack: Any
) -> None:
    """After an upload and two answers, at least one service exports each metric. Each service has its own port."""
    (port,) = free_ports(1)
    (tmp_path / "prices.yaml").write_text(PRICES)
    environment = {
        "CAUSEWAY_OPENAI_BASE_URL": model.url,
        "CAUSEWAY_OPENAI_MODELS": "stub",
        "CAUSEWAY_MODEL": "stub",
        "CAUSEWAY_METRICS_PORT": str(port),
        "CAUSEWAY_PRICES_FILE": str(tmp_path / "prices.yaml"),
    }
    async with start_stack(tmp_path / "data", **environment) as stack:
        assert (await stack.ingest())["state"] == "succeeded"
        detectors = {side: {"regex": {"regex": ["email"], "action": "redact"}} for side in ("input", "output")}
        question = stack.question("When is high water? Write to me@example.org.", detectors=detectors)
        assert (await stack.http.post("/2024-04/chat/stream", json=question)).status_code == 200
        assert (await stack.http.post("/chat", json=stack.question())).status_code == 200
        services = stack.description()["services"]
        ports = [each["metrics_port"] for name, each in services.items() if name != "nats"]
        assert len(set(ports)) == 5
        exported = await sample_names(ports)
    all_names = set().union(*exported.values())
    used = {metric for _, expression in expressions() for metric in metrics_of(expression)}
    assert used - FOREIGN - CERTIFICATES <= all_names
    # Both processes export the metrics of NATS streams, so that one of them can stop.
    for name in ("gateway", "ingest"):
        assert "causeway_nats_stream_messages" in exported[str(services[name]["metrics_port"])]
    for names in exported.values():
        assert "process_resident_memory_bytes" in names
