"""The names under which documents are cited."""

import pytest
from retriever.domain.document import Document


@pytest.mark.parametrize(
    ("name", "cited"),
    [
        ("plan.pdf", "plan.pdf"),
        ("a b/ü.md", "a b/ü.md"),
        ("C#.pdf", "C%23.pdf"),
        ("What now?.md", "What now%3F.md"),
        ("100%.md", "100%25.md"),
        ("C%23.pdf", "C%2523.pdf"),
        ("[draft] a\\b.md", "%5Bdraft%5D a%5Cb.md"),
    ],
)
def test_special_characters_are_encoded_in_citations(name: str, cited: str) -> None:
    """A cited name escapes the characters that end a URL's path or a citation's brackets."""
    document = Document("id", name, original="original")
    assert document.citation(0) == cited
    assert document.citation(3) == f"{cited}#page=3"


def test_a_document_without_an_original_is_cited_by_its_plain_name() -> None:
    """A document without an original file is cited by its plain name."""
    assert Document("C# guide", "C# guide").citation(0) == "C# guide"
