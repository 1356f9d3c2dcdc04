"""Texts cut into what can be quoted."""

import pytest
from generator.extractive.passages import Passage, passages, sentences
from hypothesis import given
from hypothesis import strategies as st


def texts(source: str) -> list[str]:
    return [passage.text for passage in passages(source)]


def one(source: str, beginning: str) -> Passage:
    (found,) = [passage for passage in passages(source) if passage.text.startswith(beginning)]
    return found


@pytest.mark.parametrize(
    "parts",
    [
        ["It costs £18.40 in 2024.", "The rest is free."],
        ["Dr. Imke Sorley met Mr. J. R. Moy at 5 p.m. on Tuesday.", "They spoke."],
        ["See Fig. 3 and No. 7, e.g. on p. 12.", "No.", "That is all!"],
        ["Version 2.5.1 is out.", "Is it good?", "Yes…", "Very."],
        ['He said "Stop!" and left.', '"Why?"', "(Nobody knew.)", "So it goes."],
        ["Visit example.org/a.html today.", "Then rest."],
        ["Der Preis beträgt ca. 5 Euro, d.h. wenig.", "Gut."],
        ["The prices are set by Skerry Line Ltd. and the board.", "Done."],
    ],
)
def test_sentences_end_where_they_end(parts: list[str]) -> None:
    """Abbreviations, decimals, initials and quotes do not break a sentence; closing quotes stay with it."""
    assert sentences(" ".join(parts)) == parts


def test_scripts_without_spaces_are_cut_at_their_own_marks() -> None:
    """Chinese, Japanese and Hindi sentences end at their marks."""
    assert sentences("渡轮每天六点十五分出发。票价是多少\uff1f十八元\uff01") == [
        "渡轮每天六点十五分出发。",
        "票价是多少\uff1f",
        "十八元\uff01",
    ]
    assert sentences("船は六時に出る。「本当\uff1f」はい。") == ["船は六時に出る。", "「本当\uff1f」", "はい。"]
    assert sentences("नाव छह बजे चलती है। किराया कितना है?") == ["नाव छह बजे चलती है।", "किराया कितना है?"]


@given(st.text(max_size=200))
def test_no_text_breaks_it_and_nothing_is_invented(text: str) -> None:
    """Whatever comes, the passages are made of the text's own characters."""
    for passage in passages(text):
        assert passage.text
        assert set(passage.text) <= set(text) | set(" (),:")
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_wrapped_lines_are_joined_and_paragraphs_kept_apart() -> None:
    """A sentence may run over lines, in Markdown and in the text of a page; a hyphen at a line's end stays."""
    source = (
        "The boat leaves at ten and is\nback by noon with a high-\nvisibility flag. It\nwaits.\n\nNobody swims."
    )
    assert texts(source) == [
        "The boat leaves at ten and is back by noon with a high-visibility flag.",
        "It waits.",
        "Nobody swims.",
    ]


def test_headings_are_context_not_passages() -> None:
    """Markdown headings stand above what follows, down to the next of their level."""
    source = "# Fares\n\nAll in pounds.\n\n## Cars\n\nFrom 46.\n\n### Vans\n\nFrom 60.\n\n## Dogs\n\nFree."
    assert [(passage.text, passage.context) for passage in passages(source)] == [
        ("All in pounds.", "Fares"),
        ("From 46.", "Fares Cars"),
        ("From 60.", "Fares Cars Vans"),
        ("Free.", "Fares Dogs"),
    ]


def test_numbered_headings_of_a_page_are_context() -> None:
    """A page's text has lost its markup, but not its numbers."""
    source = (
        "4. Person overboard\r\n4.1 The first minute\r\nShout and keep pointing at the person whatever people\r\n"
        "ask of you, and do nothing else.\r\n4.2 Rescue boat\r\nIt is in the water within five minutes.\r\n"
    )
    assert [(passage.text, passage.context) for passage in passages(source)] == [
        (
            "Shout and keep pointing at the person whatever people ask of you, and do nothing else.",
            "4. Person overboard 4.1 The first minute",
        ),
        ("It is in the water within five minutes.", "4. Person overboard 4.2 Rescue boat"),
    ]


def test_a_short_line_without_an_end_is_a_label() -> None:
    """It may be a heading, a signature or a page's footer: quoted last."""
    source = "Welcome aboard\nThe company was founded in 1923 and has carried people since then.\nPage 3 of 8"
    assert [(passage.text, passage.is_label) for passage in passages(source)] == [
        ("Welcome aboard", True),
        ("The company was founded in 1923 and has carried people since then.", False),
        ("Page 3 of 8", True),
    ]


def test_items_of_a_list_are_passages_under_what_introduces_them() -> None:
    """Each item stands alone, over several lines too; bullets and numbers are left out."""
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
    """A line that was wrapped before a number begins no list."""
    assert texts("A patient and one companion travel free on Route\n1. The letter is shown at check-in.") == [
        "A patient and one companion travel free on Route 1.",
        "The letter is shown at check-in.",
    ]


def test_rows_of_tables_carry_their_headings() -> None:
    """A row can be read by itself; the header and the rule are none."""
    source = (
        "## Fares\n\n| Ticket | Route 1 | Route 2 |\n|--|--:|:--|\n| Adult | £18.40 | £7.20 |\n| Child | free | |"
    )
    assert texts(source) == ["Adult (Route 1: £18.40, Route 2: £7.20)", "Child (Route 1: free)"]
    assert one(source, "Adult").context == "Fares Ticket Route 1 Route 2"
    assert texts("| a | b |\n| c | d |") == ["a (b)", "c (d)"]


def test_markup_is_left_out() -> None:
    """Emphasis, code and links show their text."""
    assert texts("**Groups:** _ask_ `desk` at [the office](https://example.org/x_y) for file_name_1.") == [
        "Groups: ask desk at the office for file_name_1."
    ]


def test_sentences_know_their_neighbours() -> None:
    """Within a paragraph, not beyond it."""
    first, second = passages("The card is free. It lasts three years.\n\nCheques are not taken.")[:2]
    assert (first.previous, first.following) == ("", "It lasts three years.")
    assert (second.previous, second.following) == ("The card is free.", "")
