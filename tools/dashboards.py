"""Write the Grafana dashboards of deploy/grafana from the panels that this module declares.

Usage: python tools/dashboards.py [--check]
"""

import argparse
import json
import sys
from dataclasses import dataclass
from typing import Any

from monitoring import GRAFANA, OURS

_COLUMNS, _HEIGHT = 3, 8
_WIDTH = 24 // _COLUMNS


@dataclass(frozen=True)
class Panel:
    """A graph: its title, its unit in Grafana's notation, and pairs of a PromQL expression and its legend."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def selector(metric: str, where: str = "") -> str:
    """Return the PromQL selector of a metric's series in the selected installation."""
    labels = ", ".join(filter(None, (OURS, 'namespace="$namespace"', where)))
    return f"{metric}{{{labels}}}"


def rate(metric: str, by: str, where: str = "") -> str:
    """Return the PromQL expression for the events per second, by labels."""
    return f"sum by ({by}) (rate({selector(metric, where)}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str = "") -> str:
    """Return the PromQL expression for a quantile of a histogram, by labels."""
    labels = f"le, {by}" if by else "le"
    buckets = selector(f"{metric}_bucket")
    return f"histogram_quantile({share}, sum by ({labels}) (rate({buckets}[$__rate_interval])))"


def spread(metric: str, by: str, legend: str) -> tuple[tuple[str, str], ...]:
    """Return the queries of the median and the 99th percentile, each with its legend."""
    return tuple((quantile(share, metric, by), f"{legend} p{share * 100:g}") for share in (0.5, 0.99))


def mean(histogram: str) -> str:
    """Return the PromQL expression for the mean of a histogram's values over all replicas."""
    total, count = (f"sum(rate({selector(f'{histogram}_{part}')}[$__rate_interval]))" for part in ("sum", "count"))
    return f"{total} / {count}"


def total(gauge: str, by: str = "") -> str:
    """Return the PromQL expression for the sum of a gauge over all replicas, by labels."""
    return f"sum{f' by ({by})' if by else ''} ({selector(gauge)})"


def maximum(gauge: str, by: str = "", where: str = "") -> str:
    """Return the PromQL expression for the greatest value of a gauge, by labels."""
    return f"max{f' by ({by})' if by else ''} ({selector(gauge, where)})"


def seconds_until(time_gauge: str, by: str = "") -> str:
    """Return the PromQL expression for the seconds until the earliest of several times, by labels."""
    return f"min{f' by ({by})' if by else ''} ({selector(time_gauge)}) - time()"


HTTP = "http_server_request_duration_seconds"
RPC = "rpc_client_call_duration_seconds"
FIRST = "gen_ai_client_operation_time_to_first_chunk_seconds"
BETWEEN = "gen_ai_server_time_per_output_token_seconds"
DETECTOR = "causeway_detector_duration_seconds"
MESSAGES = "causeway_nats_stream_messages"
SIZE, LIMIT = "causeway_nats_stream_size_bytes", "causeway_nats_stream_limit_bytes"
STORED, STORAGE = "jetstream_server_total_message_bytes", "jetstream_server_max_storage"
MODEL = "gen_ai_client_operation_duration_seconds"

DASHBOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "requests": (
        "Causeway: requests",
        (
            Panel("Requests by route", "reqps", ((rate(f"{HTTP}_count", "http_route"), "{{http_route}}"),)),
            Panel(
                "Requests by dialect",
                "reqps",
                ((rate(f"{HTTP}_count", "causeway_dialect"), "{{causeway_dialect}}"),),
            ),
            Panel(
                "Requests by front end",
                "reqps",
                ((rate(f"{HTTP}_count", "causeway_frontend"), "{{causeway_frontend}}"),),
            ),
            Panel(
                "Errors by status",
                "reqps",
                (
                    (
                        rate(
                            f"{HTTP}_count",
                            "http_response_status_code",
                            'http_response_status_code=~"4..|50[02-9]"',
                        ),
                        "{{http_response_status_code}}",
                    ),
                ),
            ),
            Panel("Time of requests", "s", spread(HTTP, "http_route", "{{http_route}}")),
            Panel(
                "Time to the first token at the gateway",
                "s",
                spread("causeway_answer_first_token_seconds", "causeway_frontend", "{{causeway_frontend}}"),
            ),
            Panel(
                "Time of each step, p95",
                "s",
                ((quantile(0.95, "causeway_answer_step_seconds", "causeway_step"), "{{causeway_step}}"),),
            ),
            Panel("Requests in progress", "short", ((total("num_requests_running"), "requests"),)),
            Panel(
                "Calls between services",
                "reqps",
                (
                    (
                        rate(f"{RPC}_count", "rpc_method, rpc_response_status_code"),
                        "{{rpc_method}} {{rpc_response_status_code}}",
                    ),
                ),
            ),
            Panel("Time of calls, p99", "s", ((quantile(0.99, RPC, "rpc_method"), "{{rpc_method}}"),)),
            Panel(
                "Time of NATS calls, p99",
                "s",
                ((quantile(0.99, "causeway_nats_call_duration_seconds", "causeway_what"), "{{causeway_what}}"),),
            ),
        ),
    ),
    "models": (
        "Causeway: models",
        (
            Panel(
                "Answers",
                "reqps",
                (
                    (
                        rate(f"{MODEL}_count", "causeway_deployment, error_type"),
                        "{{causeway_deployment}} {{error_type}}",
                    ),
                ),
            ),
            Panel("Time of answers", "s", spread(MODEL, "causeway_deployment", "{{causeway_deployment}}")),
            Panel(
                "Time to the first token",
                "s",
                spread(FIRST, "causeway_deployment", "{{causeway_deployment}}"),
            ),
            Panel(
                "Time between tokens",
                "s",
                spread(BETWEEN, "causeway_deployment", "{{causeway_deployment}}"),
            ),
            Panel(
                "Tokens per second",
                "short",
                (
                    (
                        rate("gen_ai_client_token_usage_sum", "causeway_deployment, gen_ai_token_type"),
                        "{{causeway_deployment}} {{gen_ai_token_type}}",
                    ),
                ),
            ),
            Panel(
                "Circuits (0 closed, 1 half open, 2 open)",
                "short",
                ((maximum("causeway_deployment_circuit", "causeway_deployment"), "{{causeway_deployment}}"),),
            ),
            Panel(
                "Answers in progress and waiting",
                "short",
                (
                    (total("causeway_deployment_busy", "causeway_deployment"), "{{causeway_deployment}} busy"),
                    (
                        total("causeway_deployment_waiting", "causeway_deployment"),
                        "{{causeway_deployment}} waiting",
                    ),
                ),
            ),
            Panel(
                "Tokens by tenant",
                "short",
                (
                    (
                        rate("causeway_tokens_total", "causeway_tenant, gen_ai_token_type"),
                        "{{causeway_tenant}} {{gen_ai_token_type}}",
                    ),
                ),
            ),
            Panel(
                "Cost by tenant, per hour",
                "short",
                (
                    (
                        f"sum by (causeway_tenant, currency) (increase({selector('causeway_cost_total')}[1h]))",
                        "{{causeway_tenant}} {{currency}}",
                    ),
                ),
            ),
        ),
    ),
    "knowledge": (
        "Causeway: retrieval, ingest and guardrails",
        (
            Panel("Passages of answers", "short", ((mean("rag_retrieve_result_count"), "mean"),)),
            Panel(
                "Scores of answers' passages",
                "short",
                (
                    (quantile(0.5, "rag_avg_source_score"), "mean score, p50"),
                    (quantile(0.5, "rag_lowest_source_score"), "lowest score, p50"),
                ),
            ),
            Panel(
                "Time of each step of a search, p95",
                "s",
                ((quantile(0.95, "causeway_retrieval_step_seconds", "causeway_step"), "{{causeway_step}}"),),
            ),
            Panel(
                "Cosine of the best passage, p50",
                "short",
                (
                    (
                        quantile(0.5, "causeway_retrieval_best_cosine", "causeway_retrieval_mode"),
                        "{{causeway_retrieval_mode}}",
                    ),
                ),
            ),
            Panel(
                "Time of embedding calls",
                "s",
                spread("causeway_embedding_duration_seconds", "gen_ai_request_model", "{{gen_ai_request_model}}"),
            ),
            Panel("Waiting jobs", "short", ((maximum("causeway_ingest_queue_depth", "lane"), "lane {{lane}}"),)),
            Panel(
                "Age of the oldest job",
                "s",
                ((maximum("causeway_ingest_queue_age_seconds", "lane"), "lane {{lane}}"),),
            ),
            Panel("Jobs", "short", ((rate("causeway_ingest_jobs_total", "state"), "{{state}}"),)),
            Panel(
                "Dead letters",
                "short",
                ((maximum(MESSAGES, where='causeway_stream="CAUSEWAY_INGEST_DEAD"'), "dead letters"),),
            ),
            Panel(
                "Detections",
                "short",
                (
                    (
                        rate("causeway_detections_total", "causeway_detector, causeway_verdict"),
                        "{{causeway_detector}} {{causeway_verdict}}",
                    ),
                ),
            ),
            Panel(
                "Time of detectors, p95",
                "s",
                ((quantile(0.95, DETECTOR, "causeway_detector"), "{{causeway_detector}}"),),
            ),
            Panel(
                "Detectors by outcome",
                "short",
                (
                    (
                        rate(f"{DETECTOR}_count", "causeway_detector, causeway_outcome"),
                        "{{causeway_detector}} {{causeway_outcome}}",
                    ),
                ),
            ),
            Panel(
                "Longest time that text was held back",
                "s",
                tuple(
                    (quantile(share, "causeway_guardrails_hold_duration_seconds"), f"p{share * 100:g}")
                    for share in (0.5, 0.95, 0.99)
                ),
            ),
        ),
    ),
    "storage": (
        "Causeway: storage, certificates and processes",
        (
            Panel("Bytes of streams", "bytes", ((maximum(SIZE, "causeway_stream"), "{{causeway_stream}}"),)),
            Panel(
                "Streams, share of their limit",
                "percentunit",
                (
                    (
                        f"{maximum(SIZE, 'causeway_stream')} / {maximum(LIMIT, 'causeway_stream')}",
                        "{{causeway_stream}}",
                    ),
                ),
            ),
            Panel(
                "JetStream's storage, used share",
                "percentunit",
                ((f"{maximum(STORED, 'pod')} / {maximum(STORAGE, 'pod')}", "{{pod}}"),),
            ),
            Panel(
                "How long records are kept",
                "s",
                (
                    (maximum("causeway_records_horizon_seconds", "causeway_stream"), "{{causeway_stream}}"),
                    (maximum("causeway_records_max_age_seconds", "causeway_stream"), "{{causeway_stream}} at most"),
                ),
            ),
            Panel(
                "Records, waiting and dropped",
                "short",
                (
                    (total("causeway_records_waiting"), "waiting"),
                    (total("causeway_records_dropped_total"), "dropped"),
                ),
            ),
            Panel(
                "Time until certificates expire",
                "s",
                (
                    (
                        seconds_until("causeway_tls_certificate_not_after_seconds", "app_kubernetes_io_name"),
                        "{{app_kubernetes_io_name}}",
                    ),
                    (seconds_until("causeway_nats_certificate_not_after_seconds"), "nats"),
                    (seconds_until("causeway_qdrant_certificate_not_after_seconds"), "qdrant"),
                ),
            ),
            Panel("Memory of processes", "bytes", ((maximum("process_resident_memory_bytes", "pod"), "{{pod}}"),)),
            Panel("CPU of processes", "short", ((rate("process_cpu_seconds_total", "pod"), "{{pod}}"),)),
            Panel(
                "Open files of processes, share of their limit",
                "percentunit",
                ((f"{maximum('process_open_fds', 'pod')} / {maximum('process_max_fds', 'pod')}", "{{pod}}"),),
            ),
        ),
    ),
}


def dashboard(name: str, title: str, panels: tuple[Panel, ...]) -> dict[str, Any]:
    """Return Grafana's JSON model of a dashboard."""
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "uid": f"causeway-{name}",
        "title": title,
        "tags": ["causeway"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "namespace",
                    "label": "Installation",
                    "type": "query",
                    "datasource": source,
                    "query": f"label_values(up{{{OURS}}}, namespace)",
                    "refresh": 2,
                    "sort": 1,
                },
            ]
        },
        "panels": [_graph(number, panel) for number, panel in enumerate(panels)],
    }


def _graph(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": {"fillOpacity": 10}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": source, "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(panel.queries)
        ],
    }


def main() -> int:
    """Run the command line; return 1 if the check finds an outdated file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is outdated")
    check = parser.parse_args().check
    stale = []
    for name, (title, panels) in DASHBOARDS.items():
        path = GRAFANA / f"{name}.json"
        text = json.dumps(dashboard(name, title, panels), indent=2) + "\n"
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if not check:
                path.write_text(text)
    for file in stale:
        print(f"deploy/grafana/{file} {'is outdated; run `make dashboards`' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
