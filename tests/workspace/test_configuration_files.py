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

# files of mounted Secrets
SECRETS = ("qdrant_api_key_file", "qdrant_ca_file", "s3_access_key_file", "s3_secret_key_file", "s3_ca_file")
SERVICES = sorted(path.name for path in (ROOT / "services").iterdir())
Compose = Callable[..., Manifests]
Documented = Callable[[str], dict[str, Any]]


def settings(service: str) -> dict[str, str]:
    """Return the variables of a service that name a configuration file, with their paths in the pod."""
    fields = importlib.import_module(f"{service}.settings").Settings.model_fields
    names = [name for name in fields if name.endswith("_file") and name not in SECRETS and name[:4] != "tls_"]
    return {f"CAUSEWAY_{name.upper()}": f"/etc/causeway/files/{name.removesuffix('_file')}.yaml" for name in names}


def filled(service: str) -> list[dict[str, Any]]:
    """Return an overlay that gives a service all its files."""
    given = settings(service)
    return [
        {"name": f"{service}-files", "behavior": "merge", "files": [Path(path).name for path in given.values()]},
        {"name": service, "behavior": "merge", "literals": [f"{name}={path}" for name, path in given.items()]},
    ]


def mounted(cluster: Manifests, service: str) -> tuple[str, dict[str, str]]:
    """Return the config map of a service's files, and the files by their paths in the pod."""
    pod = cluster.pods[service]
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "files")
    (volume,) = (each for each in pod["volumes"] if each["name"] == "files")
    name = volume["configMap"]["name"]
    assert mount["readOnly"] is True
    return name, {f"{mount['mountPath']}/{file}": text for file, text in cluster.config(name).items()}


@pytest.mark.parametrize("overlay", ["embedded", "prod"])
@pytest.mark.parametrize("service", SERVICES)
def test_a_file_is_where_its_setting_says(overlay: str, service: str, compose: Compose, tmp_path: Path) -> None:
    """Each setting for a file can be given one in the same way, and the pod has it at this path."""
    for path in settings(service).values():
        (tmp_path / Path(path).name).write_text(f"# {path} of the {service}\n")
    cluster = compose(overlay, configMapGenerator=filled(service))
    said = cluster.environment(cluster.pods[service]["containers"][0])
    _, files = mounted(cluster, service)
    assert settings(service)
    for name, path in settings(service).items():
        assert said[name] == path
        assert files[path] == f"# {path} of the {service}\n"


def test_a_changed_file_rolls_its_service_alone(compose: Compose, tmp_path: Path) -> None:
    """A changed content changes the config map's name, which only the pods of its service use."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for names, text in ((before, "limits: {}\n"), (after, "limits: {a: 1}\n")):
        (tmp_path / "quotas.yaml").write_text(text)
        generator = {"name": "gateway-files", "behavior": "merge", "files": ["quotas.yaml"]}
        cluster = compose("prod", configMapGenerator=[generator])
        names |= {service: mounted(cluster, service)[0] for service in SERVICES}
    assert {service for service in SERVICES if before[service] != after[service]} == {"gateway"}


def test_the_page_shows_what_works(compose: Compose, documented: Documented, tmp_path: Path) -> None:
    """The kustomization of docs/deploy.md gives the gateway its files, here those of examples/."""
    shown = documented("files")["configMapGenerator"]
    names = shown[0]["files"]
    for name in names:
        if name == "policy.yaml":
            (tmp_path / name).write_text("input: []\n")
        else:
            shutil.copy(ROOT / "examples" / name, tmp_path)
    cluster = compose("prod", configMapGenerator=shown)
    said = cluster.environment(cluster.pods["gateway"]["containers"][0])
    _, files = mounted(cluster, "gateway")
    assert {said[name] for name in settings("gateway")} == files.keys()
    assert {Path(path).name for path in files} == set(names)
    assert all(text == (tmp_path / Path(path).name).read_text() for path, text in files.items())


def test_the_page_lists_every_file(root: Path) -> None:
    """The table of docs/deploy.md has each config map and each setting for a file."""
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


def test_urls_are_opened_as_the_page_shows(compose: Compose, documented: Documented) -> None:
    """The kustomization for documents from URLs sets the same value for gateway and ingest, and includes the
    component.
    """
    shown = documented("documents from URLs")
    components = [Path(each).name for each in shown["components"]]
    cluster = compose("prod", components, configMapGenerator=shown["configMapGenerator"])
    assert components == ["ingest-urls"]
    for service in ("gateway", "ingest"):
        said = cluster.environment(cluster.pods[service]["containers"][0])
        assert said["CAUSEWAY_INGEST_URLS"] == '["docs.example.org"]'


def test_originals_are_kept_in_a_bucket(compose: Compose, root: Path) -> None:
    """With the overlay of docs/originals.md, gateway and ingest have its bucket, and the files of an access key."""
    page = (root / "docs" / "originals.md").read_text()
    [block] = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = yaml.safe_load(block)
    components = [Path(each).name for each in shown["components"]]
    fields = {name: shown[name] for name in ("configMapGenerator", "patches")}
    cluster = compose("prod", components, **fields)
    stores = []
    for service in ("gateway", "ingest"):
        pod = cluster.pods[service]
        said = cluster.environment(pod["containers"][0])
        stores.append({name: value for name, value in said.items() if name.startswith("CAUSEWAY_S3_")})
        (volume,) = (each for each in pod["volumes"] if each.get("secret", {}).get("secretName") == "originals")
        (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == volume["name"])
        paths = {said["CAUSEWAY_S3_ACCESS_KEY_FILE"], said["CAUSEWAY_S3_SECRET_KEY_FILE"]}
        assert paths == {f"{mount['mountPath']}/{name}" for name in ("access-key", "secret-key")}
        assert mount["readOnly"] is True
    assert stores[0] == stores[1]
    assert (stores[0]["CAUSEWAY_S3_BUCKET"], stores[0]["CAUSEWAY_S3_REGION"]) == ("documents", "eu-central-1")
