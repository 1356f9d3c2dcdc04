"""Dashboards, alerts and autoscalers use metrics that exist, and the documentation has all metrics."""

import ast
import functools
import json
import re
from collections.abc import Iterator

import pytest
import yaml
from monitoring import FOREIGN, GRAFANA, OURS, ROOT, alerts, expressions, metrics_of

MONITORING = ROOT / "deploy" / "k8s" / "components" / "monitoring"
# The metrics of prometheus_client, which every process exports.
PROCESS = {f"process_{name}" for name in ("resident_memory_bytes", "cpu_seconds_total", "open_fds", "max_fds")}
# The suffixes that each function of `servicekit.metrics` adds to the name of a metric.
ENDINGS = {
    "durations": ("_seconds_bucket", "_seconds_sum", "_seconds_count"),
    "amounts": ("_bucket", "_sum", "_count"),
    "counter": ("_total",),
}
GAUGE_UNITS = {"s": "_seconds", "By": "_bytes"}


@functools.cache
def declared() -> set[str]:
    """Return the Prometheus names of all metrics that the sources declare."""
    names = set()
    for module in modules():
        names |= set(metrics_of_module(module))
    return names


@functools.cache
def modules() -> list[ast.Module]:
    """Return all modules of the services and libraries, except generated ones."""
    paths = [*(ROOT / "services").glob("*/src/**/*.py"), *(ROOT / "libs").glob("[!c]*/src/**/*.py")]
    return [ast.parse(path.read_text()) for path in paths]


def documented() -> dict[str, set[str]]:
    """Return the metrics in docs/observability.md, with their labels."""
    page = (ROOT / "docs" / "observability.md").read_text()
    page = page.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z0-9_]+)` \| (.*?) \|", page, re.MULTILINE)
    return {name: set(re.findall(r"`([a-z_]+)`", labels)) for name, labels in rows}


def metrics_of_module(module: ast.Module) -> Iterator[str]:
    """Yield the Prometheus names of the metrics that a module declares."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        match node.func:
            case ast.Attribute(value=ast.Name(id="metrics"), attr=function) if texts:
                name = texts[0].replace(".", "_")
                if function == "observed_counter":
                    yield name + "_total"
                if function == "observed":
                    yield name + GAUGE_UNITS.get(texts[1], "")
                for ending in ENDINGS.get(function, ()):
                    yield name + ending
            case ast.Name(id="Histogram") if texts:  # the gateway's metrics with RAGEngine's names
                for ending in ENDINGS["amounts"]:
                    yield texts[0] + ending
            case ast.Name(id="Gauge" | "GaugeMetricFamily") if texts:
                yield texts[0]
            case ast.Name(id="Counter" | "CounterMetricFamily") if texts:
                yield f"{texts[0]}_total"


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_metric_exists(where: str, expression: str) -> None:
    """Every metric of a panel or an alert is declared in the sources."""
    used = metrics_of(expression)
    assert used, where
    assert used <= declared() | PROCESS | FOREIGN, where


def test_autoscalers_use_metrics_that_exist() -> None:
    """KEDA's queries use declared metrics."""
    file = ROOT / "deploy" / "k8s" / "components" / "keda" / "scaled-object.yaml"
    queries = [
        trigger["metadata"]["query"]
        for scaler in yaml.safe_load_all(file.read_text())
        for trigger in scaler["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    ]
    assert len(queries) == 2
    for query in queries:
        assert metrics_of(query)
        assert metrics_of(query) <= declared()


def test_dashboards_show_one_installation() -> None:
    """Each selector of a panel has the label of the platform and the selected namespace. The variable `namespace`
    lists all namespaces of the platform.
    """
    for path in GRAFANA.glob("*.json"):
        dashboard = json.loads(path.read_text())
        [namespace] = [each for each in dashboard["templating"]["list"] if each["name"] == "namespace"]
        assert namespace["query"] == f"label_values(up{{{OURS}}}, namespace)"
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                selectors = re.findall(r"\{[^}]*\}", target["expr"])
                assert selectors, target["expr"]
                for selector in selectors:
                    assert selector.startswith(f'{{{OURS}, namespace="$namespace"'), target["expr"]


def test_scrapes_set_the_labels_that_rules_select() -> None:
    """Every PodMonitor adds the labels of the platform and the service to its series."""
    monitors = [document for path in MONITORING.glob("*.yaml") for document in yaml.safe_load_all(path.read_text())]
    pod_monitors = [monitor for monitor in monitors if monitor and monitor.get("kind") == "PodMonitor"]
    assert len(pod_monitors) == 3
    for monitor in pod_monitors:
        labels = ["app.kubernetes.io/part-of", "app.kubernetes.io/name"]
        assert monitor["spec"]["podTargetLabels"] == labels, monitor["metadata"]["name"]


def test_every_alert_is_documented() -> None:
    """docs/observability.md names exactly the existing alerts."""
    page = (ROOT / "docs" / "observability.md").read_text()
    named = set(re.findall(r"`(Causeway[A-Za-z]+)`", page))
    assert named == {rule["alert"] for rule in alerts()}


def test_every_dashboard_is_deployed() -> None:
    """The kustomization has exactly the existing dashboards."""
    [generator] = yaml.safe_load((GRAFANA / "kustomization.yaml").read_text())["configMapGenerator"]
    assert sorted(generator["files"]) == sorted(path.name for path in GRAFANA.glob("*.json"))


def test_every_metric_is_documented() -> None:
    """docs/observability.md has exactly the existing metrics. Their labels occur in the sources."""
    endings = re.compile("_(bucket|sum|count)$")
    from_sources = {
        endings.sub("", name)
        for module in modules()
        for name in metrics_of_module(module)
        if not name.startswith(("rag_", "num_"))
    }
    page = documented()
    assert page.keys() == from_sources
    words = {
        node.value.replace(".", "_")
        for module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for name, labels in page.items():
        assert labels <= words, name
