"""RecognisedLine lines become paragraphs."""

import math

from ingest.ocr.lines import confidence, sections
from ingest.ocr.recogniser import RecognisedLine


def line(
    text: str, x: float, y: float, *, width: float = 0, score: float = 1.0, turn: float = 0.0
) -> RecognisedLine:
    """Return a line 20 pixels high. ``turn`` is its rotation around the page's top left corner, in radians."""
    right, bottom = x + (width or 10 * len(text)), y + 20
    corners = [(x, y), (right, y), (right, bottom), (x, bottom)]
    cosine, sine = math.cos(turn), math.sin(turn)
    a, b, c, d = [(left * cosine - top * sine, left * sine + top * cosine) for left, top in corners]
    return RecognisedLine(text, score, (a, b, c, d))


PAGE = (("The boat leaves at ten and is back", 0), ("at noon, if the wind allows that it", 30), ("sails.", 60))


def test_lines_are_joined_to_paragraphs() -> None:
    """Lines are joined in reading order, independent of the order of recognition."""
    found = [line(text, 100, y) for text, y in reversed(PAGE)]
    [section] = sections(found)
    assert section.text == "The boat leaves at ten and is back at noon, if the wind allows that it sails."


def test_a_skewed_page_is_straightened() -> None:
    """The rows of a skewed page remain rows."""
    rows = [("Ship", "Built", "Seats"), ("Petrel", "2009", "420"), ("Fulmar", "1994", "300")]
    found = [
        line(cell, 100 + 300 * column, 100 + 40 * number, turn=math.radians(3))
        for number, row in enumerate(rows)
        for column, cell in enumerate(row)
    ]
    [section] = sections(found)
    assert section.text == "Ship: Petrel; Built: 2009; Seats: 420\nShip: Fulmar; Built: 1994; Seats: 300"


def test_confidence_is_that_of_the_letters() -> None:
    """Longer lines have more weight in the confidence. The confidence of a picture without text is 0."""
    assert confidence([line("x" * 30, 0, 0, score=1.0), line("x" * 10, 0, 30, score=0.6)]) == 0.9
    assert confidence([]) == 0.0
    assert sections([]) == ()
