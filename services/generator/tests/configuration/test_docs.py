"""The documentation of ``models.yaml`` is correct."""

import re
from pathlib import Path

import pytest
from generator.configuration.models_file import Reader

ROOT = Path(__file__).resolve().parents[4]
BLOCKS = [
    block
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "models.md").read_text(), re.DOTALL)
    if "servers:" in block
]


@pytest.mark.parametrize("text", [*BLOCKS, (ROOT / "examples" / "models.yaml").read_text()])
def test_the_examples_are_read(tmp_path: Path, text: str) -> None:
    """The reader accepts each example, given its keys and files."""
    (tmp_path / "key").write_text("s3cret")
    text = text.replace("/run/secrets/vllm", "key").replace("models/llm/tokenizer.json", "estimate")
    environ = dict.fromkeys(re.findall(r"env: (\w+)", text), "s3cret")
    assert Reader(tmp_path / "models.yaml", environ)(text.encode()).counters


def test_the_message_is_the_one_that_is_shown(tmp_path: Path) -> None:
    """The error message on the page is that of the reader."""
    page = (ROOT / "docs" / "models.md").read_text()
    wrong = BLOCKS[0].replace("server: gpu-2", "server: gpu2").replace("/run/secrets/vllm", "key")
    (tmp_path / "key").write_text("s3cret")
    with pytest.raises(ValueError, match="models") as caught:
        Reader(tmp_path / "models.yaml", {"VLLM_KEY": "a", "OPENAI_API_KEY": "b"})(wrong.encode())
    assert str(caught.value).removeprefix(f"{tmp_path}/") in page
