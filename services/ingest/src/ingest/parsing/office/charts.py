"""Reads charts of Office documents (DrawingML) from their cached values: a row for each category."""

from collections.abc import Iterator

from lxml import etree  # type: ignore[import-untyped]  # ships no types

from ingest.parsing.text.clean import flat
from ingest.parsing.text.tables import row

_C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"


def lines(chart: etree._Element) -> Iterator[str]:
    """Yield the chart's title, then a row for each category, for example ``Month: May; Passengers: 420``."""
    title = chart.find(f".//{_C}title")
    if title is not None:
        yield flat("".join(text.text or "" for text in title.iter(f"{_A}t")))
    header = [""]
    columns: list[dict[int, str]] = []
    for series in chart.iter(f"{_C}ser"):
        categories = _points(series, "cat") or _points(series, "xVal")
        values = _points(series, "val") or _points(series, "yVal")
        if not columns:
            columns.append(categories)
        header.append(" ".join(_points(series, "tx").values()))
        columns.append(values)
    for index in sorted(set().union(*columns)):
        yield row(header, [column.get(index, "") for column in columns])


def _points(series: etree._Element, name: str) -> dict[int, str]:
    """Return the cached texts or numbers of an element of a series, by index."""
    part = series.find(f"{_C}{name}")
    if part is None:
        return {}
    return {
        int(point.get("idx", "0")): flat(value.text or "")
        for point in part.iter(f"{_C}pt")
        if (value := point.find(f"{_C}v")) is not None
    }
