"""Reading ``models.yaml``, and the errors about wrong files."""

from pathlib import Path
from typing import Any

import pytest
from generator.configuration.models_file import Configuration, Reader
from generator.configuration.schema import AzureEntry, OpenAIEntry, TritonEntry
from generator.tokenizers.estimate import EstimatedTokens

GOOD = """
servers:
  vllm:
    kind: openai
    url: http://127.0.0.1:8000/v1
    api_key: {env: VLLM_KEY}
    headers:
      X-Org: acme
      X-Team: {file: team.txt}
    timeouts: {connect: 1, first_token: 30, idle: 10}
  cloud: {kind: azure, url: https://acme.openai.azure.com, api_version: 2024-10-21, api_key: {env: AZURE}}
  triton: {kind: triton, url: "127.0.0.1:8001"}
  here: {kind: extractive}
models:
- name: assistant
  context_window: 8192
  tokenizer: estimate
  deployments:
  - {server: vllm, model: org/llm, weight: 3, max_concurrency: 8, queue: 4}
  - {server: cloud, model: gpt-4o, tier: 2, headers: {X-Tier: "2"}}
  - {server: triton, tier: 3, answer_tokens: 100}
- name: extractive
  deployments: [{server: here}]
retries: {most: 1, within: 5}
circuit: {failures: 3, seconds: 7}
"""
ENVIRON = {"VLLM_KEY": "s3cret-vllm", "AZURE": "s3cret-azure", "EMPTY": ""}
LONG = "x" * 300


def read(folder: Path, text: str = GOOD, default: str = "") -> Configuration:
    (folder / "team.txt").write_text("s3cret-team\n")
    return Reader(folder / "models.yaml", ENVIRON, default=default)(text.encode())


def test_a_good_file_is_read_with_its_secrets(tmp_path: Path) -> None:
    """Secrets come from the environment and from files, without the final newline. Missing keys have their
    defaults.
    """
    file = read(tmp_path).file
    vllm, cloud, triton = (file.servers[name] for name in ("vllm", "cloud", "triton"))
    assert isinstance(vllm, OpenAIEntry)
    assert vllm.api_key is not None
    assert vllm.api_key.get_secret_value() == "s3cret-vllm"
    assert {name: value.get_secret_value() for name, value in vllm.headers.items()} == {
        "x-org": "acme",
        "x-team": "s3cret-team",
    }
    assert isinstance(cloud, AzureEntry)
    assert cloud.api_version == "2024-10-21"
    assert isinstance(triton, TritonEntry)
    assistant, extractive = file.models
    assert [
        (deployment.server, deployment.model, deployment.weight, deployment.tier)
        for deployment in assistant.deployments
    ] == [
        ("vllm", "org/llm", 3, 1),
        ("cloud", "gpt-4o", 1, 2),
        ("triton", "", 1, 3),
    ]
    assert (assistant.deployments[0].max_concurrency, assistant.deployments[0].queue) == (8, 4)
    assert extractive.context_window is None
    assert (file.retries.most, file.circuit.seconds) == (1, 7)


def test_no_secret_is_shown(tmp_path: Path) -> None:
    """No representation of the configuration contains a secret."""
    configuration = read(tmp_path)
    shown = repr(configuration) + str(configuration.file) + configuration.file.model_dump_json()
    assert "s3cret" not in shown


def test_each_model_has_its_counter(tmp_path: Path) -> None:
    """Each model has the configured tokenizer, or else that of its kind of server. Unchanged ones are reused."""
    reader = Reader(tmp_path / "models.yaml", ENVIRON)
    (tmp_path / "team.txt").write_text("x")
    first = reader(GOOD.encode()).counters
    assert isinstance(first["assistant"], EstimatedTokens)
    assert first["extractive"].count("one two three") == 3
    assert first["extractive"].exact
    second = reader(GOOD.replace("weight: 3", "weight: 4").encode()).counters
    assert all(second[name] is first[name] for name in first)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("weight: 3", "wieght: 3", "line 19, models[0].deployments[0].wieght: there is no such key"),
        ("weight: 3", "weight: 0", "line 19, models[0].deployments[0].weight: Input should be greater than 0"),
        ("weight: 3", "weight: .nan", "line 19, models[0].deployments[0].weight"),
        (
            "server: vllm,",
            "server: vlm,",
            "line 19, models[0].deployments[0].server: there is no server 'vlm'; use one of: ",
        ),
        ("- name: extractive", "- name: assistant", "line 22, models[1].name: there are two models 'assistant'"),
        ("server: triton, tier", "server: vllm, model: org/llm, tier", "line 21, models[0].deployments[2]: "),
        ("weight: 3", "version: 1", "line 19, models[0].deployments[0].version: Input should be a valid string"),
        (
            "weight: 3",
            'version: "1"',
            "line 19, models[0].deployments[0].version: servers of kind openai do not support this key",
        ),
        (
            "tier: 3,",
            "tier: 3, headers: {A: b},",
            "line 21, models[0].deployments[2].headers: servers of kind triton",
        ),
        (
            "- name: extractive\n",
            "- name: extractive\n  tools: true\n",
            "line 23, models[1].tools: model 'extractive' has no deployment on a server of kind openai or azure",
        ),
        (
            "- name: extractive\n  deployments: [{server: here}]",
            "- name: answers\n  pictures: true\n  deployments: [{server: triton}, {server: here}]",
            "line 23, models[1].pictures: model 'answers' has no deployment on a server of kind openai or azure",
        ),
        (
            "- name: extractive\n  deployments: [{server: here}]",
            "- name: answers\n  reasoning: reasoning\n  deployments: [{server: triton}]",
            "line 23, models[1].reasoning: model 'answers' has no deployment on a server of kind openai or azure",
        ),
        ("kind: openai", "kind: opneai", "line 3, servers.vllm: "),
        ("    kind: openai\n", "", "line 3, servers.vllm: this is missing"),
        ("url: http://127.0.0.1:8000/v1", "url: localhost", "line 5, servers.vllm.url: "),
        ("url: http://127.0.0.1:8000/v1", "url: http://a:b@c/v1", "line 5, servers.vllm.url: "),
        (
            "{env: VLLM_KEY}",
            "{env: UNSET}",
            "line 6, servers.vllm.api_key: the variable UNSET is not set, or empty",
        ),
        (
            "{env: VLLM_KEY}",
            "{env: EMPTY}",
            "line 6, servers.vllm.api_key: the variable EMPTY is not set, or empty",
        ),
        (
            "{env: VLLM_KEY}",
            "s3cret-literal",
            "line 6, servers.vllm.api_key: this must be {env: NAME} or {file: PATH}",
        ),
        ("{env: VLLM_KEY}", "{env: VLLM_KEY, file: x}", "line 6, servers.vllm.api_key: this must be {env: NAME}"),
        ("team.txt", "missing.txt", "line 9, servers.vllm.headers.X-Team: the file missing.txt cannot be read"),
        ("acme\n", '"a\\nb"\n', "line 8, servers.vllm.headers.X-Org: this contains characters that a header"),
        ("X-Org:", '"X Org":', "line 8, servers.vllm.headers.X Org: "),
        (", api_version: 2024-10-21", "", "line 11, servers.cloud.api_version: this is missing"),
        ("connect: 1,", "connect: 0,", "line 10, servers.vllm.timeouts.connect: Input should be greater than 0"),
        ("tokenizer: estimate", "tokenizer: missing", "line 17, models[0].tokenizer: model 'assistant': "),
        (
            "tokenizer: estimate",
            "chat_template: missing.jinja",
            "line 17, models[0].chat_template: model 'assistant': The chat template missing.jinja cannot be read",
        ),
        ("tokenizer: estimate", f"tokenizer: {LONG}", "line 17, models[0].tokenizer: model 'assistant': "),
        ("tokenizer: estimate", f"chat_template: {LONG}", "line 17, models[0].chat_template: model 'assistant': "),
        ("retries:", "retrys:", "line 24, retrys: there is no such key"),
        (GOOD, "", "line 1, servers: this is missing; "),
        (GOOD, "servers: {}\nmodels: []", "line 2, models: "),
        (GOOD, "servers: [", "line 1: this is not valid YAML"),
    ],
)
def test_errors_name_the_file_the_line_and_the_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    """An error names the file, the line and the key, and contains no secret."""
    assert old in GOOD
    with pytest.raises(ValueError, match=r"models\.yaml") as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert message in str(caught.value)
    assert str(tmp_path / "models.yaml") in str(caught.value)
    error: Any = caught.value
    while error is not None:
        assert "s3cret" not in repr(error)
        error = error.__cause__


def test_a_key_of_the_openai_api_needs_one_server_that_supports_it(tmp_path: Path) -> None:
    """A model with a deployment on a server of kind openai may have these keys; a disabled key has no effect."""
    text = GOOD.replace(
        "- name: assistant", "- name: assistant\n  pictures: true\n  tools: true\n  reasoning: reasoning"
    )
    text = text.replace(
        "- name: extractive", '- name: extractive\n  tools: false\n  pictures: false\n  reasoning: ""'
    )
    assistant, extractive = read(tmp_path, text).file.models
    assert (assistant.pictures, assistant.tools, assistant.reasoning) == (True, True, "reasoning")
    assert (extractive.pictures, extractive.tools, extractive.reasoning) == (False, False, "")


def test_the_default_model_must_exist(tmp_path: Path) -> None:
    """The environment may select the default model, which must exist."""
    assert read(tmp_path, default="extractive").default == "extractive"
    with pytest.raises(ValueError, match="there is no model 'missing', which CAUSEWAY_MODEL names"):
        read(tmp_path, default="missing")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """A path of a chat template is relative to the file. A template itself stays unchanged."""
    (tmp_path / "plain.jinja").write_text("{{ messages[0].content }}")
    text = GOOD.replace("tokenizer: estimate", "tokenizer: estimate\n  chat_template: plain.jinja")
    assert read(tmp_path, text).file.models[0].chat_template == str(tmp_path / "plain.jinja")
    source = "'{{ messages[0].content }}'"
    assert read(tmp_path, text.replace("plain.jinja", source)).file.models[0].chat_template == source.strip("'")
