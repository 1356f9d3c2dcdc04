"""The evaluation of search: its metrics, its files, and its checks."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def bench(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the modules of the benchmarks importable."""
    monkeypatch.syspath_prepend(str(root / "bench"))
    yield
    for name in [name for name in sys.modules if name == "eval" or name.startswith("eval_")]:
        del sys.modules[name]


def test_metrics() -> None:
    """The metrics conform to their definitions. A relevant document that is not found lowers them."""
    import eval_metrics as metrics

    ranking, relevant = ["x", "a", "y", "b"], {"a": 1, "b": 2, "c": 1}
    assert [metrics.found(ranking, relevant, k) for k in (1, 2)] == [False, True]
    assert metrics.recall(ranking, relevant, 4) == pytest.approx(2 / 3)
    assert metrics.reciprocal_rank(ranking, relevant) == 0.5
    assert metrics.reciprocal_rank(ranking, {"z": 1}) == 0
    assert metrics.ndcg(["b", "a", "c"], relevant) == pytest.approx(1)
    # (1/log2(3) + 2/log2(5)) / (2/log2(2) + 1/log2(3) + 1/log2(4))
    assert metrics.ndcg(ranking, relevant) == pytest.approx((0.63093 + 0.86135) / (2 + 0.63093 + 0.5), abs=1e-4)
    assert metrics.mean([]) == 0


def test_a_text_collection(tmp_path: Path) -> None:
    """The text of a document begins with its title. Queries without a relevant document are left out."""
    import eval_sets

    documents = [
        {"_id": "d1", "title": "T", "text": "one"},
        {"_id": "d2", "text": "two"},
        {"_id": "d3", "text": ""},
    ]
    queries = [{"_id": "q1", "text": "first"}, {"_id": "q2", "text": "second"}]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t2\nq1\td1\t0\nq2\td1\t0\n")
    found = eval_sets.collection(tmp_path)
    assert [(each.text, each.relevant) for each in found.questions] == [("first", {"d2": 2})]
    assert [each["text"] for each in found.texts] == ["T\n\none", "two"]
    assert not found.has_pages


def test_documents_with_questions(tmp_path: Path) -> None:
    """A question has one or more relevant pages. The questions of a subset are spread over the file."""
    import eval_sets

    (tmp_path / "a.md").write_text("a")
    rows: list[dict[str, Any]] = [{"question": str(number), "sourcepage": "a.md"} for number in range(9)]
    rows.append({"question": "9", "sourcepages": ["a.md", "b.pdf#page=2"]})
    questions = tmp_path.parent / f"{tmp_path.name}.jsonl"
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = eval_sets.documents(tmp_path, questions, 5)
    assert [each.text for each in found.questions] == ["0", "2", "4", "6", "8"]
    assert [path.name for path in found.files] == ["a.md"]
    assert eval_sets.documents(tmp_path, questions).questions[9].relevant == {"a.md": 1, "b.pdf#page=2": 1}


def test_shortfalls() -> None:
    """A metric below its required value is reported. Hybrid search is reported if it is worse than the better of
    text and vector search by more than one question.
    """
    import eval as evaluation
    import eval_sets

    questions = eval_sets.documents(eval_sets.EXAMPLES / "corpus", eval_sets.EXAMPLES / "questions.jsonl", 10)
    good = dict.fromkeys(evaluation.PAGE_FIGURES, 0.8)
    modes = {mode: dict(good) for mode in ("text", "vectors", "hybrid")}
    modes["text"]["recall@5"] = 0.9
    assert evaluation.shortfalls(questions, modes, {"mrr": 0.8}) == []
    modes["vectors"]["recall@5"] = 1.0
    [worse] = evaluation.shortfalls(questions, modes, {})
    assert "recall@5 is 2 questions below" in worse
    [below] = evaluation.shortfalls(questions, {"hybrid": good}, {"mrr": 0.81})
    assert "mrr" in below
    assert "| hybrid | 0.800 |" in evaluation.table(questions, modes)


def test_floors_need_hybrid_search(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line refuses a floor if it does not evaluate hybrid search."""
    import eval as evaluation

    monkeypatch.setattr(sys, "argv", ["eval.py", "--mode", "text", "--floor", "mrr=0.8"])
    with pytest.raises(SystemExit):
        evaluation.main()
    assert "--floor needs --mode hybrid" in capsys.readouterr().err


def test_languages(tmp_path: Path) -> None:
    """Both sets of a language have the same documents. The table has the earlier value of a metric that has
    changed. A shortfall of hybrid search is reported.
    """
    import eval_languages
    from eval_page import write_section

    for path in eval_languages.SETS.glob("*.jsonl"):
        both = [eval_languages.language_set(path, kind) for kind in eval_languages.KINDS]
        assert both[0].texts == both[1].texts
        assert len({question.text for each in both for question in each.questions}) == 20
    modes = {"text": 1.0, "vectors": 0.5, "hybrid": 0.96}
    result = {"de": {kind: dict(modes) for kind in eval_languages.KINDS}}
    before = {"de": {kind: {**modes, "text": 0.25} for kind in eval_languages.KINDS}}
    table = eval_languages.table(result, before, "final")
    assert "| de | 1.000 (0.250) | 0.500 | 0.960 |" in table
    assert eval_languages.shortfalls(result) == []
    result["de"]["final"]["hybrid"] = 0.94
    assert eval_languages.shortfalls(result) == [
        "de, final: hybrid search has 0.940, the better of text and vector search has 1.000; at least 0.950 is "
        "required"
    ]

    page = tmp_path / "eval.md"
    page.write_text("# Title\n\n## Languages\n\nold\n\n## Other\n\nstays\n")
    write_section(page, "## Languages", "new\n")
    assert page.read_text() == "# Title\n\n## Other\n\nstays\n\n## Languages\n\nnew\n"
