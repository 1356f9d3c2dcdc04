"""The pod of Triton: a real Triton server starts with the files of the pod's volumes."""

from pathlib import Path

import pytest
from causeway_testing.triton import triton_server
from manifests import Manifests, build
from tritonclient.grpc import InferenceServerClient

# Like the vLLM backend, this backend adds its inputs and outputs to the configuration. It needs them and model.json
# to start.
BACKEND = """
import json
from pathlib import Path

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(0)
        config.add_input({"name": "text_input", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "text_output", "data_type": "TYPE_STRING", "dims": [-1]})
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def initialize(self, args):
        output = pb_utils.get_output_config_by_name(json.loads(args["model_config"]), "text_output")
        self.type = output["data_type"]
        json.loads((Path(pb_utils.get_model_dir()) / "model.json").read_text())["max_model_len"]

    def execute(self, requests):
        return None
"""


def mount(cluster: Manifests, workload: str, path: str, directory: Path) -> Path:
    """Create the files that the kubelet mounts below `path` of a workload's container in `directory`.

    Only volumes of config maps are supported. A volume has the layout of the kubelet: the files are in a directory
    whose name is a timestamp, `..data` is a symbolic link to this directory, and each name at the top of the volume
    is a link to its file below `..data`. A mount with a `subPath` has only this file.
    """
    pod = cluster.pods[workload]
    volumes = {each["name"]: each for each in pod["volumes"]}
    for each in pod["containers"][0]["volumeMounts"]:
        where = each["mountPath"]
        if where != path and not where.startswith(f"{path}/"):
            continue
        config_map = volumes[each["name"]]["configMap"]
        texts = cluster.config(config_map["name"])
        items = config_map.get("items", [{"key": key, "path": key} for key in texts])
        files = {item["path"]: texts[item["key"]] for item in items}
        target = directory / where.removeprefix(path).lstrip("/")
        if "subPath" in each:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(files[each["subPath"]])
        else:
            _atomic_volume(target, files)
    return directory


def _atomic_volume(root: Path, files: dict[str, str]) -> None:
    data = root / "..2026_01_02_03_04_05.123456789"
    for name, text in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(text)
    (root / "..data").symlink_to(data.name)
    for top in {name.split("/")[0] for name in files}:
        (root / top).symlink_to(Path("..data") / top)


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    """Create a backend with the name of vLLM. It requires the same parts of the configuration as the vLLM
    backend.
    """
    directory = tmp_path / "backends" / "vllm"
    directory.mkdir(parents=True)
    (directory / "model.py").write_text(BACKEND)
    return directory


def test_triton_starts_with_the_mounted_files(backend: Path, tmp_path: Path) -> None:
    """With the arguments of its container, Triton reads the mounted model repository, and the model `llm` becomes
    ready. Its configuration has the context window of the mounted file and the members that the backend adds.
    """
    cluster = build("prod-gpu")
    (container,) = cluster.pods["triton"]["containers"]
    program, repository, *arguments = container["args"]
    assert (program, repository) == ("tritonserver", "--model-repository=/models")
    models = mount(cluster, "triton", "/models", tmp_path / "models")
    server = triton_server(models, arguments=arguments, backends=[backend])
    with server as address, InferenceServerClient(address) as client:
        assert client.is_model_ready("llm")
        assert [each.name for each in client.get_model_repository_index().models] == ["llm"]
        config = client.get_model_config("llm").config
    assert config.parameters["context_window"].string_value == "8192"
    assert config.model_transaction_policy.decoupled
