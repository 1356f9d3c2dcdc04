"""The passages of a text that an answer can quote."""

from generator.extractive.passages import Passage, passages
from hypothesis import given
from hypothesis import strategies as st


def texts(source: str) -> list[str]:
    return [passage.text for passage in passages(source)]


def passage_with_beginning(source: str, beginning: str) -> Passage:
    (found,) = [passage for passage in passages(source) if passage.text.startswith(beginning)]
    return found


@given(st.text(max_size=200))
def test_passages_contain_only_characters_of_the_text(text: str) -> None:
    """The passages of any text are not empty. They consist of its own characters and of the punctuation between the
    cells of a table.
    """
    for passage in passages(text):
        assert passage.text
        assert set(passage.text) <= set(text) | set(" (),:")


def test_wrapped_lines_are_joined_and_paragraphs_kept_apart() -> None:
    """A sentence may span lines but not paragraphs. A hyphen at the end of a line stays."""
    source = "The boat leaves at ten and is\nback by noon with a high-\nvisibility flag. It\nwaits.\n\nNo swimming."
    assert texts(source) == [
        "The boat leaves at ten and is back by noon with a high-visibility flag.",
        "It waits.",
        "No swimming.",
    ]


def test_only_lines_of_scripts_without_spaces_are_joined_without_one() -> None:
    """A line break between Chinese or Japanese characters is no space. One before or after Hangul is."""
    assert texts("渡轮每天早上八点\n出发。") == ["渡轮每天早上八点出发。"]
    assert texts("이 표기는 漢字\n그리고 한글의\n漢字이다.") == ["이 표기는 漢字 그리고 한글의 漢字이다."]


def test_headings_are_context_not_passages() -> None:
    """A Markdown heading is the context of the text below it, up to the next heading of its level."""
    source = "# Fares\n\nAll in pounds.\n\n## Cars\n\nFrom 46.\n\n### Vans\n\nFrom 60.\n\n## Dogs\n\nFree."
    assert [(passage.text, passage.context) for passage in passages(source)] == [
        ("All in pounds.", "Fares"),
        ("From 46.", "Fares Cars"),
        ("From 60.", "Fares Cars Vans"),
        ("Free.", "Fares Dogs"),
    ]


def test_numbered_headings_of_a_page_are_context() -> None:
    """A numbered heading of a page is the context of the text below it."""
    source = (
        "4. Person overboard\r\n4.1 The first minute\r\nShout and keep pointing at the person even if people\r\n"
        "speak to you, and do nothing else.\r\n4.2 Rescue boat\r\nIt is in the water within five minutes.\r\n"
    )
    assert [(passage.text, passage.context) for passage in passages(source)] == [
        (
            "Shout and keep pointing at the person even if people speak to you, and do nothing else.",
            "4. Person overboard 4.1 The first minute",
        ),
        ("It is in the water within five minutes.", "4. Person overboard 4.2 Rescue boat"),
    ]


def test_a_short_line_without_an_end_is_a_label() -> None:
    """A short line without a full stop is a label, such as a heading or a footer."""
    source = "Welcome aboard\nThe company was founded in 1923 and has carried people since then.\nPage 3 of 8"
    assert [(passage.text, passage.is_label) for passage in passages(source)] == [
        ("Welcome aboard", True),
        ("The company was founded in 1923 and has carried people since then.", False),
        ("Page 3 of 8", True),
    ]


def test_items_of_a_list_have_the_introducing_line_as_context() -> None:
    """Each sentence of an item is a passage, without bullet or number. Its context is the introducing line."""
    source = (
        "Bring along:\n\n- a letter of the\n  hospital;\n* your card. It is free.\n\n1. Then wait.\n2) Then go."
    )
    assert [(passage.text, passage.context) for passage in passages(source)] == [
        ("Bring along:", ""),
        ("a letter of the hospital;", "Bring along:"),
        ("your card.", "Bring along:"),
        ("It is free.", "Bring along:"),
        ("Then wait.", "Bring along:"),
        ("Then go.", "Bring along:"),
    ]


def test_a_number_at_the_start_of_a_line_may_belong_to_the_sentence() -> None:
    """A wrapped line that begins with a number does not begin a list."""
    assert texts("A patient and one companion travel free on Route\n1. The letter is shown at check-in.") == [
        "A patient and one companion travel free on Route 1.",
        "The letter is shown at check-in.",
    ]


def test_rows_of_tables_carry_their_headings() -> None:
    """Each row of a table is a passage with its column names. The header and the rule are not passages. A table
    without a rule has no header.
    """
    source = (
        "## Fares\n\n| Ticket | Route 1 | Route 2 |\n|--|--:|:--|\n| Adult | £18.40 | £7.20 |\n| Child | free | |"
    )
    assert texts(source) == ["Adult (Route 1: £18.40, Route 2: £7.20)", "Child (Route 1: free)"]
    assert passage_with_beginning(source, "Adult").context == "Fares Ticket Route 1 Route 2"
    assert texts("| a | b |\n| c | d |") == ["a (b)", "c (d)"]


def test_rows_as_ingest_writes_them_are_passages() -> None:
    """Each row that ingest writes as a line is a passage with the number of its table."""
    source = (
        "Fares\n\nTicket: Adult; Route 1: £18.40; Route 2: £7.20\nTicket: Child; Route 1: free\n\n"
        "Adult; Price: 5\nChild; Price: 3\n\nPetrel | 2009\nDunlin | 2011\n\nNote: it is cold; bring a coat."
    )
    assert [(passage.text, passage.table) for passage in passages(source)] == [
        ("Fares", 0),
        ("Ticket: Adult; Route 1: £18.40; Route 2: £7.20", 1),
        ("Ticket: Child; Route 1: free", 1),
        ("Adult; Price: 5", 2),
        ("Child; Price: 3", 2),
        ("Petrel | 2009", 3),
        ("Dunlin | 2011", 3),
        ("Note: it is cold; bring a coat.", 0),
    ]


def test_markup_is_left_out() -> None:
    """Emphasis, code and links are replaced by their text."""
    assert texts("**Groups:** _ask_ `desk` at [the office](https://example.org/x_y) for file_name_1.") == [
        "Groups: ask desk at the office for file_name_1."
    ]


def test_sentences_know_their_neighbours() -> None:
    """A sentence has its neighbours within its paragraph only."""
    first, second = passages("The card is free. It lasts three years.\n\nCheques are not taken.")[:2]
    assert (first.previous, first.following) == ("", "It lasts three years.")
    assert (second.previous, second.following) == ("The card is free.", "")
