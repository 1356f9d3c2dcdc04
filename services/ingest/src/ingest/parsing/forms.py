"""Reads the fields of PDF forms. Their values are not part of the page's text."""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pypdfium2 as pdfium  # type: ignore[import-untyped]  # ships no types
import pypdfium2.raw as raw  # type: ignore[import-untyped]  # ships no types

from ingest.parsing.text.clean import flat

_MOST_FIELDS = 10_000
"""Maximum number of fields of a page that are read."""
_LONGEST = 100_000
_CHECKED = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)
_UNREAD = (raw.FPDF_FORMFIELD_PUSHBUTTON, raw.FPDF_FORMFIELD_SIGNATURE, raw.FPDF_FORMFIELD_UNKNOWN)


def fields(document: pdfium.PdfDocument, number: int) -> Iterator[str]:
    """Yield the filled fields of a page as ``Name: value``, and the checked boxes.

    Args:
        document: The document. If its forms are not initialised, the function yields nothing.
        number: The number of the page, from 0.
    """
    if document.formenv is None:
        return
    page = document[number]
    try:
        for index in range(min(raw.FPDFPage_GetAnnotCount(page), _MOST_FIELDS)):
            annotation = raw.FPDFPage_GetAnnot(page, index)
            try:
                if raw.FPDFAnnot_GetSubtype(annotation) == raw.FPDF_ANNOT_WIDGET:
                    yield from _field(document.formenv, annotation)
            finally:
                raw.FPDFPage_CloseAnnot(annotation)
    finally:
        page.close()


def _field(form: Any, annotation: Any) -> Iterator[str]:
    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in _UNREAD or kind < 0:
        return
    name = _text(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation) or _text(
        raw.FPDFAnnot_GetFormFieldName, form, annotation
    )
    if kind in _CHECKED:
        value = ""
        if raw.FPDFAnnot_IsChecked(form, annotation):
            value = _text(raw.FPDFAnnot_GetFormFieldExportValue, form, annotation) or "yes"
    else:
        value = _text(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    if value:
        yield f"{name.rstrip(':')}: {value}" if name else value


def _text(get: Callable[[Any, Any, Any, int], int], form: Any, annotation: Any) -> str:
    length = min(get(form, annotation, None, 0), 2 * _LONGEST)
    if length <= 2:
        return ""
    buffer = ctypes.create_string_buffer(length)
    get(form, annotation, ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), length)
    return flat(buffer.raw[: length - 2].decode("utf-16-le", "ignore"))
