"""The `retrieval` block of a profile."""

from pathlib import Path

import pytest
from gateway.domain import Tuning
from gateway.frontends.profiles import Frontend
from gateway.frontends.profiles_file import GatewayProperties, parse
from gateway.frontends.retrieval_block import RetrievalEntry
from servicekit.yaml_file import BadFile

PROFILE = """
frontends:
  - name: default
    index: docs
    retrieval: {%s}
"""


def profile(block: str) -> Frontend:
    [found] = parse((PROFILE % block).encode(), "f", Frontend(), GatewayProperties())
    return found


def test_every_key_of_the_block_is_read() -> None:
    """Every key is read. Without a block, the retriever's defaults apply."""
    plain = profile("")
    assert (plain.tuning, plain.further_indexes, plain.rerank) == (Tuning(), (), False)
    found = profile(
        "indexes: [more], fusion: ranks, dense_weight: 0, expand: false, diversity: 0.2, neighbours: 1,"
        " rerank: true, reranker: r"
    )
    assert found.tuning == Tuning("ranks", 0, expand=False, diversity=0.2, neighbours=1, reranker="r")
    assert (found.further_indexes, found.rerank) == (("more",), True)
    assert found.indexes_for((), "index") == ("docs", "more")


@pytest.mark.parametrize(
    "block", ["dense_weight: 1.5", "neighbours: 11", "fusion: best", "indexes: [a/b]", "wieght: 1", "diversity: -1"]
)
def test_an_invalid_block_is_refused(block: str) -> None:
    """The error names the key."""
    with pytest.raises(BadFile, match=block.partition(":")[0]):
        profile(block)


def test_the_page_has_every_key() -> None:
    """The documentation's example can be loaded, and its table has every key."""
    page = (Path(__file__).resolve().parents[4] / "docs" / "retrieval.md").read_text()
    [shown] = parse(page.split("```yaml\n")[1].split("```")[0].encode(), "f", Frontend(), GatewayProperties())
    assert (shown.further_indexes, shown.tuning.dense_weight, shown.rerank) == (("minutes",), 0.3, True)
    assert all(f"\n| `{field}` |" in page for field in RetrievalEntry.model_fields)
