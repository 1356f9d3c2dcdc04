"""XML, YAML and notebooks."""

import json
from typing import Any

import pytest
from ingest.parsing.content import Head, Omission, Page, Section
from ingest.parsing.formats import notebook, xml_records, yaml_records
from ingest.parsing.refusals import TooLarge, Unreadable

from ..conftest import parsed


def sections(module: Any, content: str | bytes) -> list[Section]:
    *_, page = parsed(module.parse, content)
    assert isinstance(page, Page)
    return list(page.sections)


def test_records_of_xml() -> None:
    """A small element is a block with a line for each name and value. Attributes are read, namespaces dropped."""
    ships = "".join(
        f'<s:ship id="{number}" class="ferry"><s:name>Petrel</s:name><s:built><s:year>2009</s:year></s:built>'
        "</s:ship>"
        for number in range(2)
    )
    [section] = sections(xml_records, f'<?xml version="1.0"?><s:fleet xmlns:s="urn:x">{ships}</s:fleet>')
    record = "ship.class: ferry\nship.name: Petrel\nship.built.year: 2009"
    assert section.text == f"{record}\n\n{record}"
    assert [section.text[start:end] for start, end in section.whole] == [record, record]


def test_prose_in_xml() -> None:
    """Large elements are sections with their titles. Long texts and texts with markup are paragraphs."""
    long = "The ferry leaves at nine in the morning from the northern pier. " * 8
    text = f"<p>{long}</p><p>It <b>never</b> waits, neither for the tide nor for the late.</p>"
    section = f"<section><title>Times</title>{text}{text}</section>"
    book = f'<book xml:lang="en"><chapter><title>Ferries</title>{section}</chapter></book>'
    head, page = parsed(xml_records.parse, book)
    assert isinstance(head, Head)
    assert head.language == "en"
    assert isinstance(page, Page)
    [found] = page.sections
    assert found.headings == ("Ferries", "Times")
    assert found.text.count("\n\nIt never waits, neither") == 2
    assert found.text.startswith("Ferries\nTimes\n\nThe ferry")


def test_entities_are_not_followed() -> None:
    """Entities neither expand nor read files of the machine."""
    bomb = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd"><!ENTITY b "bbbb">]><x><y>text &a; &b;</y></x>'
    [section] = sections(xml_records, bomb)
    assert "root:" not in section.text
    assert "bbbb" not in section.text
    declared = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    [section] = sections(xml_records, f"{declared}<x>&a;<y>first</y>&a;<z>second</z></x>")
    assert section.text.split("\n") == ["y: first", "z: second"]
    assert sections(xml_records, f"{declared}<x>&a;</x>") == []
    with pytest.raises(Unreadable, match="broken"):
        sections(xml_records, "<a><b></a>")


def test_yaml_documents() -> None:
    """Each line has a path and a value, as for JSON. Several documents are read. Invalid YAML is plain text."""
    text = "ship:\n  name: Petrel # of Oban\n  built: 2009\n  sold: null\n---\nports: [Oban, Mull]\n"
    assert "\n\n".join(s.text for s in sections(yaml_records, text)) == (
        "ship.name: Petrel\nship.built: 2009\n\nports: Oban, Mull"
    )
    template = "name: {{ .Values.name }}\n  other: [\n"
    assert sections(yaml_records, template)[0].text == template.strip()
    assert sections(yaml_records, "# nothing\n") == []


def test_aliases_are_bounded() -> None:
    """A small file whose aliases expand to billions of values is refused."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    with pytest.raises(TooLarge, match="values"):
        sections(yaml_records, "\n".join(lines))


def test_keys_that_are_not_texts() -> None:
    """A null key appears as the document has it, and a key that is a list as JSON."""
    text = "null: first\n~: second\n[a, b]: third\n"
    assert sections(yaml_records, text)[0].text == 'null: first\n~: second\n["a", "b"]: third'


def test_the_maximum_number_of_yaml_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document may have exactly the maximum number of values, but no more."""
    monkeypatch.setattr(yaml_records, "_MAX_NODES", 3)
    assert sections(yaml_records, "[a, b]")[0].text == "a, b"
    with pytest.raises(TooLarge, match="more than 3 values"):
        sections(yaml_records, "[a, b, c]")


def test_a_notebook() -> None:
    """Text cells are split at headings. Code has its printed output, without pictures and colour codes."""
    cells = [
        {"cell_type": "markdown", "source": ["# Tides\n", "High water at six."]},
        {
            "cell_type": "code",
            "source": "print(6)",
            "outputs": [
                {"output_type": "stream", "text": ["\x1b[31m6\x1b[0m\n"]},
                {"output_type": "display_data", "data": {"image/png": "iVBOR", "text/plain": "<Figure>"}},
            ],
        },
    ]
    [section] = sections(notebook, json.dumps({"cells": cells, "nbformat": 4}))
    assert section.headings == ("Tides",)
    assert section.text == "Tides\n\nHigh water at six.\n\nprint(6)\n\nOutput:\n6\n\nOutput:\n<Figure>"
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1"]}]}], "nbformat": 3}
    assert sections(notebook, json.dumps(old))[0].text == "x = 1"
    for damaged in ('{"cells": [{"cell_type": "code"}]}', '{"cells": 1}', '{"cells": ['):
        with pytest.raises(Unreadable, match="damaged"):
            sections(notebook, damaged)


def test_long_outputs_of_a_notebook() -> None:
    """The parser cuts an output after 10,000 characters, with an omission."""
    outputs = [{"output_type": "stream", "text": "6" * length} for length in (10_000, 10_001, 20_000)]
    cells = [{"cell_type": "code", "source": "print(x)", "outputs": outputs}]
    _, page, omission = parsed(notebook.parse, json.dumps({"cells": cells, "nbformat": 4}))
    assert isinstance(page, Page)
    assert page.sections[0].text.count("6") == 30_000
    assert omission == Omission("TooLarge", "2 outputs were cut. The limit is 10000 characters for each output.")
