"""``embeddings.yaml``: its values, its errors, and its documentation."""

import re
from pathlib import Path

import pytest
from embedding import file
from embedding.file import Configured
from servicekit.yaml_file import BadFile

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "embeddings.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
ON_TRITON = [
    block
    for block in re.findall(r"```yaml\n(models:.*?)```", (ROOT / "docs" / "triton.md").read_text(), re.DOTALL)
    if "dimension:" in block
]
GOOD = """
default: e5
models:
- kind: minilm
- name: e5
  kind: openai
  url: http://127.0.0.1:8000/v1
  model: intfloat/e5
  dimension: 768
  max_tokens: 500
  tokenizer: tokenizer.json
  api_key: {file: key.txt}
  batch: 16
  concurrency: 2
  timeout: 5
  tries: 2
  ask_dimension: true
  query_prefix: "query: "
  passage_prefix: "passage: "
- {name: words, kind: triton, url: "127.0.0.1:8001", dimension: 32, tls: true, api_key: {env: KEY}}
"""


def read(folder: Path, text: str = GOOD) -> Configured:
    (folder / "key.txt").write_text("s3cret-file\n")
    (folder / "tokenizer.json").write_text("{}")
    path = folder / "embeddings.yaml"
    path.write_text(text)
    return file.read(path, {"KEY": "s3cret-env"})


def test_all_values_are_read(tmp_path: Path) -> None:
    """All values are read, secrets from their own files or variables. Missing values have defaults. The
    representation contains no secret.
    """
    configured = read(tmp_path)
    minilm, e5, words = configured.models
    assert configured.default == "e5"
    assert (minilm.kind, minilm.public_name) == ("minilm", "all-minilm-l6-v2")
    assert (e5.kind, e5.public_name, e5.model, e5.address) == (
        "openai",
        "e5",
        "intfloat/e5",
        "http://127.0.0.1:8000/v1",
    )
    assert (e5.dimension, e5.max_tokens, e5.ask_dimension) == (768, 500, True)
    assert (e5.batch, e5.concurrency, e5.timeout, e5.tries) == (16, 2, 5, 2)
    assert (e5.query_prefix, e5.passage_prefix) == ("query: ", "passage: ")
    assert e5.tokenizer == tmp_path / "tokenizer.json"
    assert (words.model, words.address, words.tls, words.max_tokens) == ("words", "127.0.0.1:8001", True, 512)
    keys = [model.api_key.get_secret_value() for model in (e5, words) if model.api_key]
    assert keys == ["s3cret-file", "s3cret-env"]
    assert "s3cret" not in repr(configured)


def test_the_first_is_the_default(tmp_path: Path) -> None:
    """If the file names no default, the first model is the default."""
    assert read(tmp_path, GOOD.replace("default: e5", "")).default == "all-minilm-l6-v2"


WRONG = [
    ("- kind: minilm", "- kind: miniml", r"line 4, models\[0\].*'minilm', 'e5', 'openai', 'triton'"),
    ("- kind: minilm", "- {kind: minilm, name: mine}", r"line 4, models\[0\]\.name: .*all-minilm-l6-v2"),
    ("- kind: minilm", "- {kind: minilm, dimension: 3}", r"line 4, models\[0\]\.dimension: there is no such key"),
    ("dimension: 768", "", r"models\[1\]\.dimension: this is missing"),
    ("dimension: 768", "dimension: 0", r"line 9, models\[1\]\.dimension"),
    ("dimension: 768", "dimension: 100000", r"line 9, models\[1\]\.dimension"),
    ("http://127.0.0.1:8000/v1", "http://user:s3cret@host/v1", r"line 7, models\[1\]\.url"),
    ("http://127.0.0.1:8000/v1", "127.0.0.1:8000", r"line 7, models\[1\]\.url"),
    ('url: "127.0.0.1:8001"', "url: http://127.0.0.1:8001", r"models\[2\]\.url"),
    ("{file: key.txt}", "s3cret-plain", r"line 12, models\[1\]\.api_key: .*\{env: NAME\}"),
    ("{file: key.txt}", "{file: gone.txt}", r"line 12, models\[1\]\.api_key: .*gone\.txt"),
    ("{env: KEY}", "{env: GONE}", r"models\[2\]\.api_key.*GONE is not set"),
    ("tokenizer.json", "gone.json", r"line 11, models\[1\]\.tokenizer: there is no such file"),
    ("timeout: 5", "timeout: 0", r"line 15, models\[1\]\.timeout"),
    ("timeout: 5", "timeout: .inf", r"line 15, models\[1\]\.timeout"),
    ("batch: 16", "batch: 0", r"line 13, models\[1\]\.batch"),
    ("name: words", "name: e5", r"line 20, models\[2\]: there are two models 'e5'"),
    (
        "default: e5",
        "default: e6",
        r"line 2, default: there is no model 'e6'; use one of: all-minilm-l6-v2, e5, words",
    ),
    (GOOD, "models: []", r"line 1, models"),
    (GOOD, "", r"models: this is missing"),
    (GOOD, "models: [", r"this is not valid YAML"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG)
def test_a_wrong_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    """The error names file, line and key, and shows no value that may be secret."""
    assert old in GOOD
    with pytest.raises(BadFile, match=message) as caught:
        read(tmp_path, GOOD.replace(old, new))
    assert str(caught.value).startswith(f"{tmp_path}/embeddings.yaml")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("text", [*BLOCKS, *ON_TRITON, (ROOT / "examples" / "embeddings.yaml").read_text()])
def test_the_examples_are_read(tmp_path: Path, text: str) -> None:
    """Each example of the documentation is read unchanged, if its keys and files exist."""
    path = tmp_path / "embeddings.yaml"
    path.write_text(re.sub(r"tokenizer: \S+/tokenizer.json", "tokenizer: tokenizer.json", text))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert file.read(path, dict.fromkeys(re.findall(r"env: (\w+)", text), "s3cret")).models


def test_the_error_message_equals_the_documentation(tmp_path: Path) -> None:
    """The error message in the documentation equals the error message of the code."""
    with pytest.raises(BadFile) as caught:
        read(tmp_path, BLOCKS[0].replace("1024", "many").replace("EMBEDDING_KEY", "KEY"))
    assert str(caught.value).removeprefix(f"{tmp_path}/") in PAGE
