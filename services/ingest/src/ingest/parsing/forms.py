"""Reads the fields of PDF forms. Their values are not part of the page's text."""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pypdfium2 as pdfium  # type: ignore[import-untyped]  # ships no types
import pypdfium2.raw as raw  # type: ignore[import-untyped]  # ships no types

from ingest.parsing.content import Omission
from ingest.parsing.text.clean import flat

_MAX_ANNOTATIONS = 10_000
"""Maximum number of annotations of a page that are examined; each field is an annotation."""
_MAX_CHARACTERS = 100_000
"""Maximum number of characters of a name or a value."""
_MAX_BYTES = 2 * _MAX_CHARACTERS + 2
"""Maximum bytes of a name or a value in UTF-16, with the final zero."""
_CHECK_FIELDS = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)
_SKIPPED_FIELDS = (raw.FPDF_FORMFIELD_PUSHBUTTON, raw.FPDF_FORMFIELD_SIGNATURE, raw.FPDF_FORMFIELD_UNKNOWN)


def fields(document: pdfium.PdfDocument, number: int) -> Iterator[str | Omission]:
    """Yield the filled fields and the checked boxes of a page as ``Name: value``.

    For what exceeds a limit, yield an omission.

    Args:
        document: The document. If its forms are not initialised, the function yields nothing.
        number: The number of the page, from 0.
    """
    if document.formenv is None:
        return
    page = document[number]
    try:
        count = raw.FPDFPage_GetAnnotCount(page)
        for index in range(min(count, _MAX_ANNOTATIONS)):
            annotation = raw.FPDFPage_GetAnnot(page, index)
            try:
                if raw.FPDFAnnot_GetSubtype(annotation) == raw.FPDF_ANNOT_WIDGET:
                    yield from _field(document.formenv, annotation, number + 1)
            finally:
                raw.FPDFPage_CloseAnnot(annotation)
        if count > _MAX_ANNOTATIONS:
            limit = f"The limit is {_MAX_ANNOTATIONS} fields, links and other annotations of a page."
            yield Omission("TooLarge", f"Further form fields on the page were not read. {limit}", number + 1)
    finally:
        page.close()


def _field(form: Any, annotation: Any, page: int) -> Iterator[str | Omission]:
    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in _SKIPPED_FIELDS or kind < 0:
        return
    name = _text(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation) or _text(
        raw.FPDFAnnot_GetFormFieldName, form, annotation
    )
    if kind in _CHECK_FIELDS:
        value = ""
        if raw.FPDFAnnot_IsChecked(form, annotation):
            value = _text(raw.FPDFAnnot_GetFormFieldExportValue, form, annotation) or "yes"
    elif raw.FPDFAnnot_GetFormFieldValue(form, annotation, None, 0) > _MAX_BYTES:
        limit = f"The limit is {_MAX_CHARACTERS} characters for each field."
        yield Omission("TooLarge", f"A form field on the page was not read. {limit}", page)
        return
    else:
        value = _text(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    if value:
        yield f"{name.rstrip(':')}: {value}" if name else value


def _text(get: Callable[[Any, Any, Any, int], int], form: Any, annotation: Any) -> str:
    length = get(form, annotation, None, 0)
    if not 2 < length <= _MAX_BYTES:
        return ""
    buffer = ctypes.create_string_buffer(length)
    get(form, annotation, ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), length)
    return flat(buffer.raw[: length - 2].decode("utf-16-le", "ignore"))
