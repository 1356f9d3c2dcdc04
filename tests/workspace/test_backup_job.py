"""The component `backup`: the permissions of its job, and its script, which deletes old backups."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from causeway.cli.commands import backup
from manifests import K8S, Manifests, size
from typer.models import OptionInfo

COMPONENT = K8S / "components" / "backup"
# A stub of `causeway` that creates a backup and records the certificate that it would use.
CAUSEWAY = """#!/bin/sh
test "$1" = backup && mkdir "$2" && echo "${CAUSEWAY_TLS_CERT_FILE:-none}" > "$2/backup.json"
"""


@pytest.fixture(scope="module", params=["embedded", "prod"])
def cluster(
    request: pytest.FixtureRequest, compose_in: Callable[..., Manifests], tmp_path_factory: pytest.TempPathFactory
) -> Manifests:
    """Build an overlay with the component `backup`."""
    return compose_in(tmp_path_factory.mktemp("overlay"), request.param, ["backup"])


def job_of(cluster: Manifests) -> dict[str, Any]:
    found: dict[str, Any] = cluster.workloads["backup"]["spec"]
    return found


@pytest.mark.parametrize("kubernetes", ["1.30", "1.37"])
def test_its_objects_are_valid(cluster: Manifests, kubernetes: str) -> None:
    """Every object of the component is valid for the Kubernetes version, and each required kind exists once."""
    own = [
        each
        for each in cluster.objects
        if each["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "backup"
    ]
    assert {"CronJob", "NetworkPolicy", "ServiceAccount", "PersistentVolumeClaim", "ConfigMap"} == {
        each["kind"] for each in own
    }
    for each in own:
        kubernetes_validate.validate(each, kubernetes, strict=True)


def test_an_overlay_changes_schedule_folders_and_size(compose: Callable[..., Manifests], root: Path) -> None:
    """The overlay of docs/backup.md sets the schedule, the number of folders and the size of the claim."""
    [block] = re.findall(
        r"^```yaml\n(.*?)^```", (root / "docs" / "backup.md").read_text(), re.MULTILINE | re.DOTALL
    )
    documented = yaml.safe_load(block)
    cluster = compose("prod", [Path(each).name for each in documented["components"]], patches=documented["patches"])
    assert job_of(cluster)["schedule"] == "0 */6 * * *"
    assert cluster.environment(cluster.pods["backup"]["containers"][0])["KEEP"] == "28"
    [claim] = [each for each in cluster.objects if each["metadata"]["name"] == "backups"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "500Gi"


def test_only_one_backup_runs_at_the_same_time(cluster: Manifests) -> None:
    """A second backup does not start during the first one, and a backup that hangs is stopped."""
    job = job_of(cluster)
    assert job["concurrencyPolicy"] == "Forbid"
    assert 0 < job["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 86400


def test_its_pod_is_restricted(cluster: Manifests) -> None:
    """The pod conforms to the restricted Pod Security Standard, can write only to /backups and /tmp, and has no
    token for the API server.
    """
    pod = cluster.pods["backup"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"] == 65532
    assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")} == {
        "/backups",
        "/tmp",
    }
    [scratch] = [each["emptyDir"]["sizeLimit"] for each in pod["volumes"] if "emptyDir" in each]
    assert size(scratch) == size(container["resources"]["requests"]["ephemeral-storage"])
    assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    assert container["image"].startswith("causeway/cli:")


def test_its_settings_are_options_of_the_command(cluster: Manifests) -> None:
    """The command or the script reads each variable of the container. The targets are services of the cluster."""
    [container] = cluster.pods["backup"]["containers"]
    variables = cluster.environment(container)
    known = {
        each.envvar
        for option in backup.backup.__annotations__.values()
        for part in getattr(option, "__args__", (option,))
        for each in getattr(option, "__metadata__", ())
        if isinstance(each, OptionInfo) and part is not None
    }
    assert variables.keys() - known == {"KEEP"}
    assert variables["CAUSEWAY_NATS_URL"] == "nats://nats:4222"
    assert variables["CAUSEWAY_RETRIEVER_TARGET"] == "dns:///retriever:50051"


def test_it_uses_the_operators_certificate(cluster: Manifests) -> None:
    """The volume has the Secret of the certificate `operator`. The Secret is optional, because it exists only with
    the component `tls`.
    """
    [volume] = [each["secret"] for each in cluster.pods["backup"]["volumes"] if "secret" in each]
    assert volume == {"secretName": "operator-tls", "optional": True}
    common_names = {each["spec"]["secretName"]: each["spec"]["commonName"] for each in cluster.of("Certificate")}
    assert not common_names or common_names["operator-tls"] == "operator"


@pytest.mark.parametrize("certified", [False, True], ids=["plain", "tls"])
def test_the_script_keeps_the_newest_backups(certified: bool, tmp_path: Path) -> None:
    """The script creates a backup, deletes only the oldest backups, and uses the certificate if it exists. A failed
    backup displaces no complete one.
    """
    backups, certificates, programs = (tmp_path / each for each in ("backups", "tls", "bin"))
    for each in (backups, certificates, programs):
        each.mkdir()
    (programs / "causeway").write_text(CAUSEWAY)
    (programs / "causeway").chmod(0o755)
    if certified:
        (certificates / "tls.crt").touch()
    for day in range(1, 5):
        (backups / f"2026010{day}T023000Z").mkdir()
        if day != 3:
            (backups / f"2026010{day}T023000Z" / "backup.json").touch()
    (backups / "lost+found").mkdir()
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "BACKUPS": str(backups),
        "CERTIFICATES": str(certificates),
        "KEEP": "3",
    }
    subprocess.run(["sh", COMPONENT / "backup.sh"], env=environment, check=True)
    remaining = sorted(each.name for each in backups.iterdir() if each.name != "lost+found")
    assert remaining[:3] == ["20260102T023000Z", "20260103T023000Z", "20260104T023000Z"]
    assert len(remaining) == 4
    assert (backups / "lost+found").is_dir()
    certificate = (backups / remaining[3] / "backup.json").read_text().strip()
    assert certificate == (str(certificates / "tls.crt") if certified else "none")


def test_a_failed_backup_deletes_nothing(tmp_path: Path) -> None:
    """If the command fails, the script fails and keeps the earlier backups."""
    for day in range(1, 5):
        (tmp_path / f"2026010{day}T023000Z").mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "causeway").symlink_to("/bin/false" if Path("/bin/false").exists() else sys.executable)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "BACKUPS": str(tmp_path), "KEEP": "1"}
    assert subprocess.run(["sh", COMPONENT / "backup.sh"], env=environment, check=False).returncode != 0
    assert len(list(tmp_path.glob("2026*"))) == 4
