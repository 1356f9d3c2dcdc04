import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from ingest.parsing.office.numbering import Numbers


def numbers(levels: str, lists: str = '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>') -> Numbers:
    root = f'<w:numbering {nsdecls("w")}><w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum>{lists}'
    return Numbers(parse_xml(f"{root}</w:numbering>"))


def level(depth: int, form: str, text: str, start: int = 1) -> str:
    return (
        f'<w:lvl w:ilvl="{depth}"><w:start w:val="{start}"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


def test_numbers_of_several_levels() -> None:
    """A deeper level restarts after each number of the outer level, and may show both numbers."""
    numbering = numbers(level(0, "decimal", "%1") + level(1, "decimal", "%1.%2") + level(2, "lowerLetter", "(%3)"))
    depths = [0, 1, 1, 2, 2, 0, 1, 2]
    assert [numbering.marker("1", depth) for depth in depths] == [
        "1",
        "1.1",
        "1.2",
        "(a)",
        "(b)",
        "2",
        "2.1",
        "(a)",
    ]


@pytest.mark.parametrize(
    ("form", "start", "expected"),
    [
        ("upperRoman", 1999, "MCMXCIX"),
        ("lowerRoman", 4, "iv"),
        ("upperLetter", 28, "BB"),
        ("lowerLetter", 26, "z"),
        ("decimalZero", 7, "07"),
        ("chineseCounting", 3, "3"),
        ("lowerRoman", 5000, "5000"),
        ("bullet", 1, "-"),
        ("none", 1, ""),
    ],
)
def test_forms(form: str, start: int, expected: str) -> None:
    """Numbers have the format that Word shows. Unknown formats are shown as digits."""
    assert numbers(level(0, form, "%1", start)).marker("1", 0) == expected


def test_lists_with_the_same_rules_continue_or_restart() -> None:
    """Two lists with the same rules continue their numbers, unless the second list restarts."""
    second = '<w:num w:numId="2"><w:abstractNumId w:val="0"/>{}</w:num>'
    restart = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride>'
    first = '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    for override, expected in (("", ["1.", "2.", "3."]), (restart, ["1.", "1.", "2."])):
        numbering = numbers(level(0, "decimal", "%1."), first + second.format(override))
        assert [numbering.marker(name, 0) for name in ("1", "2", "2")] == expected


def test_an_unknown_list() -> None:
    """A paragraph of an unknown list has no marker. Without numbering rules, no paragraph has a marker."""
    assert numbers("").marker("1", 0) == numbers("").marker("9", 3) == Numbers(None).marker("1", 0) == ""
