"""The alert rules fire when they should and stay silent otherwise.

`promtool test rules` evaluates deploy/grafana/alerts.yaml with the series of cases/*.yaml. A case has:

- ``alert``, ``at``: the rule and the time of the evaluation;
- ``series``: each series with its values, one for each minute, in promtool's notation
  (https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/#series);
- ``fires``: the labels and the summary of each expected alert.

The test adds the label that the rules select to every series, except to those of the kubelet. It also adds a copy
of each series without the label and in another namespace, as if another program exported it. The copies must not
change the result.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from monitoring import GRAFANA, OURS, alerts

CASES: list[dict[str, Any]] = [
    {**case, "file": path.stem}
    for path in sorted(Path(__file__).parent.glob("cases/*.yaml"))
    # Every scalar stays a string, because YAML would read 0x10 as sixteen.
    for case in yaml.load(path.read_text(), yaml.BaseLoader)
]


def groups() -> list[dict[str, Any]]:
    """Return the groups of rules, in the form that Prometheus reads."""
    found: list[dict[str, Any]] = yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["spec"]["groups"]
    return found


def rules() -> dict[str, dict[str, Any]]:
    """Return each rule by the name of its alert."""
    return {rule["alert"]: rule for rule in alerts()}


def promtool(
    directory: Path, cases: Sequence[Mapping[str, Any]], changed: Mapping[str, Any] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run promtool with cases, and return its result.

    Args:
        directory: The directory for the files of promtool.
        cases: The cases.
        changed: A rule that replaces the one of the same name.
    """
    program = shutil.which("promtool")
    assert program, "promtool is missing: install Debian's package prometheus (apt-get install prometheus)"
    rule_groups = [
        {**group, "rules": [changed if changed and changed["alert"] == r["alert"] else r for r in group["rules"]]}
        for group in groups()
    ]
    (directory / "rules.json").write_text(json.dumps({"groups": rule_groups}))
    tests = {
        "rule_files": ["rules.json"],
        "evaluation_interval": "1m",
        "tests": [_promtool_test(case) for case in cases],
    }
    (directory / "tests.json").write_text(json.dumps(tests))
    return subprocess.run(
        [program, "test", "rules", "tests.json"], cwd=directory, capture_output=True, text=True, check=False
    )


def _promtool_test(case: Mapping[str, Any]) -> dict[str, Any]:
    severity = rules()[case["alert"]]["labels"]
    series = [
        {"series": name, "values": values}
        for selector, values in case["series"].items()
        for name in (_labelled(selector, OURS), _labelled(selector.replace('namespace="', 'namespace="not-')))
    ]
    expected = [
        {
            "exp_labels": {**{name: value for name, value in fired.items() if name != "summary"}, **severity},
            "exp_annotations": {"summary": fired["summary"]},
        }
        for fired in case["fires"]
    ]
    return {
        "name": case["name"],
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": [{"eval_time": case["at"], "alertname": case["alert"], "exp_alerts": expected}],
    }


def _labelled(series: str, label: str = "") -> str:
    name, _, labels = series.partition("{")
    if name.startswith("kubelet_") or not label:
        return series
    return f"{name}{{{label}, {labels or '}'}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['file']}: {case['name']}")
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    """The rule raises exactly the alerts of the case."""
    run = promtool(tmp_path, [case])
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("alert", rules())
def test_each_rule_has_a_case_that_fires_and_one_that_is_silent(alert: str) -> None:
    """Each rule has a case in which it fires beside a healthy installation, and one in which it is silent."""
    rule_cases = [case for case in CASES if case["alert"] == alert]
    assert any(not case["fires"] for case in rule_cases)
    for case in rule_cases:
        namespaces = set(re.findall('namespace="([^"]*)"', " ".join(case["series"])))
        fired = {each["namespace"] for each in case["fires"]}
        if fired and namespaces > fired:
            return
    pytest.fail(
        f"no case of {alert} fires in one namespace while another namespace is healthy: add one to cases/*.yaml"
    )


@pytest.mark.parametrize("alert", rules())
def test_a_rule_without_the_selector_fails_its_cases(alert: str, tmp_path: Path) -> None:
    """If a rule selects the series of other programs, too, its cases fail."""
    rule = rules()[alert]
    assert OURS in rule["expr"]
    unselective = {**rule, "expr": re.sub(f"{OURS},? ?", "", rule["expr"])}
    assert promtool(tmp_path, [case for case in CASES if case["alert"] == alert], unselective).returncode == 1


@pytest.mark.parametrize("alert", rules())
def test_no_rule_names_an_installation(alert: str) -> None:
    """Rules distinguish installations by a label, and name none of them."""
    assert "namespace=" not in rules()[alert]["expr"].replace(" ", "")
