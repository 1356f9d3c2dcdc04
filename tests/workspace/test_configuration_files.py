"""Configuration files of services in a cluster, as docs/deploy.md describes them."""

import importlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import ROOT, Manifests

# Settings whose files are in mounted Secrets.
SECRETS = ("qdrant_api_key_file", "qdrant_ca_file", "s3_access_key_file", "s3_secret_key_file", "s3_ca_file")
SERVICES = sorted(path.name for path in (ROOT / "services").iterdir())
Compose = Callable[..., Manifests]
Documented = Callable[[str], dict[str, Any]]


def settings(service: str) -> dict[str, str]:
    """Return the environment variables of a service that name a configuration file, with the path of each file in
    the pod.
    """
    fields = importlib.import_module(f"{service}.settings").Settings.model_fields
    names = [name for name in fields if name.endswith("_file") and name not in SECRETS and name[:4] != "tls_"]
    return {f"CAUSEWAY_{name.upper()}": f"/etc/causeway/files/{name.removesuffix('_file')}.yaml" for name in names}


def generators(service: str) -> list[dict[str, Any]]:
    """Return the config map generators of an overlay that gives a service all its configuration files."""
    paths = settings(service)
    return [
        {"name": f"{service}-files", "behavior": "merge", "files": [Path(path).name for path in paths.values()]},
        {"name": service, "behavior": "merge", "literals": [f"{name}={path}" for name, path in paths.items()]},
    ]


def mounted(cluster: Manifests, service: str) -> tuple[str, dict[str, str]]:
    """Return the name of the config map with a service's files, and the texts of the files by their paths in the
    pod.
    """
    pod = cluster.pods[service]
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "files")
    (volume,) = (each for each in pod["volumes"] if each["name"] == "files")
    name = volume["configMap"]["name"]
    assert mount["readOnly"] is True
    return name, {f"{mount['mountPath']}/{file}": text for file, text in cluster.config(name).items()}


@pytest.mark.parametrize("overlay", ["embedded", "prod"])
def test_a_file_is_at_the_path_of_its_setting(overlay: str, compose: Compose, tmp_path: Path) -> None:
    """Every configuration file is added to a service in the same way, and the pod has it at the path of its
    setting. It has no file of another service.
    """
    for service in SERVICES:
        for path in settings(service).values():
            (tmp_path / Path(path).name).write_text(f"# {path}\n")
    cluster = compose(
        overlay, configMapGenerator=[generator for service in SERVICES for generator in generators(service)]
    )
    for service in SERVICES:
        assert settings(service)
        variables = cluster.environment(cluster.pods[service]["containers"][0])
        assert settings(service).items() <= variables.items()
        _, files = mounted(cluster, service)
        assert files == {path: f"# {path}\n" for path in settings(service).values()}


def test_a_changed_file_restarts_only_its_service(compose: Compose, tmp_path: Path) -> None:
    """If a file changes, the name of its config map changes. Only the pods of this service use the config map."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for names, text in ((before, "limits: {}\n"), (after, "limits: {a: 1}\n")):
        (tmp_path / "quotas.yaml").write_text(text)
        generator = {"name": "gateway-files", "behavior": "merge", "files": ["quotas.yaml"]}
        cluster = compose("embedded", configMapGenerator=[generator])
        names |= {service: mounted(cluster, service)[0] for service in SERVICES}
    assert {service for service in SERVICES if before[service] != after[service]} == {"gateway"}


def test_the_kustomization_of_the_page_works(compose: Compose, documented: Documented, tmp_path: Path) -> None:
    """The kustomization of docs/deploy.md adds files to the gateway. The test uses the files of examples/."""
    shown = documented("files")["configMapGenerator"]
    names = shown[0]["files"]
    for name in names:
        if name == "policy.yaml":
            (tmp_path / name).write_text("input: []\n")
        else:
            shutil.copy(ROOT / "examples" / name, tmp_path)
    cluster = compose("prod", configMapGenerator=shown)
    variables = cluster.environment(cluster.pods["gateway"]["containers"][0])
    _, files = mounted(cluster, "gateway")
    assert {variables[name] for name in settings("gateway")} == files.keys()
    assert {Path(path).name for path in files} == set(names)
    assert all(text == (tmp_path / Path(path).name).read_text() for path, text in files.items())


def test_the_page_lists_every_file(root: Path) -> None:
    """The table of docs/deploy.md has each config map, and each setting that names a configuration file."""
    page = (root / "docs" / "deploy.md").read_text()
    rows = set()
    for maps, setting in re.findall(
        r"^\| (`[\w-]+-files`(?:, `[\w-]+-files`)*) \| `(CAUSEWAY_\w+)` \|", page, re.MULTILINE
    ):
        rows |= {(each.removesuffix("-files"), setting) for each in re.findall(r"`([\w-]+)`", maps)}
    assert rows == {(service, name) for service in SERVICES for name in settings(service)}


def test_the_first_overlay_names_the_registry(compose: Compose, documented: Documented) -> None:
    """The first overlay of the page pulls every image of the platform from the registry, and serves the console."""
    shown = documented("your images")
    [overlay], components = shown["resources"], [Path(each).name for each in shown["components"]]
    cluster = compose(Path(overlay).name, components, images=shown["images"])
    images = {each["image"] for each in cluster.containers if "causeway/" in each["image"]}
    assert {each.partition("/causeway/")[0] for each in images} == {"registry.example.com"}
    assert {each.partition("/causeway/")[2].partition(":")[0] for each in images} == set(SERVICES)
    assert cluster.environment(cluster.pods["gateway"]["containers"][0])["CAUSEWAY_CONSOLE"] == "true"


def test_the_kustomization_for_urls_works(compose: Compose, documented: Documented) -> None:
    """The kustomization of docs/deploy.md for documents from URLs sets the same value for gateway and ingest, and
    includes the component.
    """
    shown = documented("documents from URLs")
    components = [Path(each).name for each in shown["components"]]
    cluster = compose("prod", components, configMapGenerator=shown["configMapGenerator"])
    assert components == ["ingest-urls"]
    for service in ("gateway", "ingest"):
        variables = cluster.environment(cluster.pods[service]["containers"][0])
        assert variables["CAUSEWAY_INGEST_URLS"] == '["docs.example.org"]'


def test_originals_are_kept_in_a_bucket(compose: Compose, root: Path) -> None:
    """With the overlay of docs/originals.md, gateway and ingest use the same bucket and have the files of an access
    key.
    """
    page = (root / "docs" / "originals.md").read_text()
    [block] = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = yaml.safe_load(block)
    components = [Path(each).name for each in shown["components"]]
    cluster = compose("prod", components, configMapGenerator=shown["configMapGenerator"])
    stores = []
    for service in ("gateway", "ingest"):
        pod = cluster.pods[service]
        variables = cluster.environment(pod["containers"][0])
        stores.append({name: value for name, value in variables.items() if name.startswith("CAUSEWAY_S3_")})
        (volume,) = (each for each in pod["volumes"] if each.get("secret", {}).get("secretName") == "originals")
        (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == volume["name"])
        paths = {variables["CAUSEWAY_S3_ACCESS_KEY_FILE"], variables["CAUSEWAY_S3_SECRET_KEY_FILE"]}
        assert paths == {f"{mount['mountPath']}/{name}" for name in ("access-key", "secret-key")}
        assert mount["readOnly"] is True
    assert stores[0] == stores[1]
    assert (stores[0]["CAUSEWAY_S3_BUCKET"], stores[0]["CAUSEWAY_S3_REGION"]) == ("documents", "eu-central-1")
