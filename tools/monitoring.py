"""Reads the rules and panels of deploy/grafana, and the metrics that they use."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
GRAFANA = ROOT / "deploy" / "grafana"
# Metrics of other programs: Prometheus, the kubelet, and the NATS exporter (version 0.17.3, with -jsz=all).
FOREIGN = {
    "up",
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
    "jetstream_server_total_message_bytes",
    "jetstream_server_max_storage",
}
# PromQL's functions and operators; https://prometheus.io/docs/prometheus/latest/querying/operators/
WORDS = {
    *("sum", "min", "max", "group", "by", "and", "on", "unless", "le"),
    *("rate", "increase", "last_over_time", "histogram_quantile", "label_replace", "or", "time"),
}
OURS = 'app_kubernetes_io_part_of="causeway"'
"""The label matcher with which rules and panels select the platform's series. The pod monitors set the label."""


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the place and the expression of each dashboard panel and alert."""
    for path in sorted(GRAFANA.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"]
    for rule in alerts():
        yield f"alerts.yaml: {rule['alert']}", rule["expr"]


def alerts() -> list[dict[str, Any]]:
    """Return the alert rules."""
    found = yaml.safe_load((GRAFANA / "alerts.yaml").read_text())
    return [rule for group in found["spec"]["groups"] for rule in group["rules"]]


def metrics_of(expression: str) -> set[str]:
    """Return the metrics in a PromQL expression."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|(by|on) \([^)]*\)|\"[^\"]*\"", " ", expression)
    return set(re.findall(r"[A-Za-z_:][A-Za-z0-9_:]*", bare)) - WORDS
