"""The documentation of ``models.yaml`` is correct: docs/models.md, and the examples in docs/triton.md."""

import re
from pathlib import Path

import pytest
from generator.configuration.models_file import Reader

ROOT = Path(__file__).resolve().parents[4]


def _blocks(page: str) -> list[str]:
    """Return the models files of a page: its YAML blocks, and the files that its shell commands write."""
    text = (ROOT / "docs" / page).read_text()
    return [
        block
        for block in re.findall(r"(?:```yaml|<<'END')\n(.*?)(?:```|END)", text, re.DOTALL)
        if block.startswith("servers:")
    ]


BLOCKS = _blocks("models.md")


@pytest.mark.parametrize("text", [*BLOCKS, *_blocks("triton.md"), (ROOT / "examples" / "models.yaml").read_text()])
def test_the_reader_accepts_the_examples(tmp_path: Path, text: str) -> None:
    """The reader accepts each example, given its keys and files."""
    (tmp_path / "key").write_text("s3cret")
    for path in ("models/llm/tokenizer.json", "models/qwen2.5-1.5b-instruct"):
        text = text.replace(path, "estimate")
    text = text.replace("/run/secrets/vllm", "key")
    environ = dict.fromkeys(re.findall(r"env: (\w+)", text), "s3cret")
    assert Reader(tmp_path / "models.yaml", environ)(text.encode()).counters


def test_the_documented_error_message_is_the_readers(tmp_path: Path) -> None:
    """The page shows the error message that the reader raises."""
    page = (ROOT / "docs" / "models.md").read_text()
    wrong = BLOCKS[0].replace("server: gpu-2", "server: gpu2").replace("/run/secrets/vllm", "key")
    (tmp_path / "key").write_text("s3cret")
    with pytest.raises(ValueError, match="models") as caught:
        Reader(tmp_path / "models.yaml", {"VLLM_KEY": "a", "OPENAI_API_KEY": "b"})(wrong.encode())
    assert str(caught.value).removeprefix(f"{tmp_path}/") in page
