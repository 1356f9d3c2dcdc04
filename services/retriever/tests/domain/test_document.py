"""Documents."""

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
def test_a_name_opens_as_it_is_cited(name: str, cited: str) -> None:
    """Nothing in it ends a path of a URL, or the brackets of a citation; different names stay different."""
    document = Document("id", name, original="original")
    assert document.cited_as(0) == cited
    assert document.cited_as(3) == f"{cited}#page=3"


def test_a_text_is_cited_by_the_name_that_its_owner_gave_it() -> None:
    """There is nothing to open."""
    assert Document("C# guide", "C# guide").cited_as(0) == "C# guide"
