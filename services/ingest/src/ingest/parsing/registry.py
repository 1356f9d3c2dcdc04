"""The supported formats: their names, suffixes and media types, and the modules that read them.

This module has only data, so that a worker can list the formats without loading a parser. `ingest.parsing.readers`
loads the modules in the parsing child.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Format:
    """A supported format.

    Attributes:
        name: The name in messages.
        module: The module of `ingest.parsing.formats` that reads the format.
        suffixes: The suffixes of file names, in lower case, separated by spaces.
        media_types: The media types of the format. Each value is the suffix for files of this type.
        binary: A noun phrase for a file of a binary format; empty for text formats.
        zipped: Whether files of this format are ZIP files.
    """

    name: str
    module: str
    suffixes: str
    media_types: Mapping[str, str] = field(default_factory=dict, hash=False)
    binary: str = ""
    zipped: bool = False


_OFFICE = "application/vnd.openxmlformats-officedocument"
FORMATS = (
    Format("PDF", "pdf", ".pdf", {"application/pdf": ".pdf"}, binary="a PDF"),
    Format(
        "Word (.docx)",
        "word",
        ".docx",
        {f"{_OFFICE}.wordprocessingml.document": ".docx"},
        binary="a Word document (.docx)",
        zipped=True,
    ),
    Format(
        "PowerPoint (.pptx)",
        "slides",
        ".pptx .pptm",
        {f"{_OFFICE}.presentationml.presentation": ".pptx"},
        binary="a PowerPoint presentation (.pptx)",
        zipped=True,
    ),
    Format(
        "Excel (.xlsx)",
        "workbook",
        ".xlsx .xlsm",
        {f"{_OFFICE}.spreadsheetml.sheet": ".xlsx"},
        binary="an Excel workbook (.xlsx)",
        zipped=True,
    ),
    Format(
        "Outlook mail (.msg)",
        "outlook",
        ".msg",
        {"application/vnd.ms-outlook": ".msg"},
        binary="a mail of Outlook (.msg)",
    ),
    Format(
        "OpenDocument (.odt, .ods, .odp)",
        "opendocument",
        ".odt .ods .odp .ott .ots .otp",
        {
            "application/vnd.oasis.opendocument.text": ".odt",
            "application/vnd.oasis.opendocument.spreadsheet": ".ods",
            "application/vnd.oasis.opendocument.presentation": ".odp",
        },
        binary="an OpenDocument file (.odt, .ods, .odp)",
        zipped=True,
    ),
    Format("EPUB", "epub", ".epub", {"application/epub+zip": ".epub"}, binary="an e-book (.epub)", zipped=True),
    Format("ZIP archive", "zip_archive", ".zip", {"application/zip": ".zip"}, binary="a ZIP archive", zipped=True),
    Format(
        "tar archive",
        "tar_archive",
        ".tar .tgz .tbz2 .txz",
        {"application/x-tar": ".tar"},
        binary="a tar archive",
    ),
    Format(
        "pictures (PNG, JPEG, TIFF, WebP)",
        "picture",
        ".png .jpg .jpeg .tif .tiff .webp",
        {"image/png": ".png", "image/jpeg": ".jpg", "image/tiff": ".tif", "image/webp": ".webp"},
        binary="a picture",
    ),
    Format("e-mail (.eml)", "mail", ".eml", {"message/rfc822": ".eml"}),
    Format("HTML", "html", ".html .htm .xhtml", {"text/html": ".html", "application/xhtml+xml": ".html"}),
    Format("RTF", "rtf", ".rtf", {"application/rtf": ".rtf", "text/rtf": ".rtf"}),
    Format(
        "subtitles (.srt, .vtt)", "subtitles", ".srt .vtt", {"text/vtt": ".vtt", "application/x-subrip": ".srt"}
    ),
    Format("XML", "xml_records", ".xml .dita .docbook .tei", {"application/xml": ".xml", "text/xml": ".xml"}),
    Format("Jupyter notebook", "notebook", ".ipynb", {"application/x-ipynb+json": ".ipynb"}),
    Format("YAML", "yaml_records", ".yaml .yml", {"application/yaml": ".yaml", "text/yaml": ".yaml"}),
    Format("Markdown", "markdown", ".md .markdown", {"text/markdown": ".md"}),
    Format("CSV", "delimited", ".csv .tsv .tab", {"text/csv": ".csv", "text/tab-separated-values": ".tsv"}),
    Format(
        "JSON",
        "records",
        ".json .geojson .jsonl .ndjson",
        {
            "application/json": ".json",
            "application/geo+json": ".json",
            "application/ld+json": ".json",
            "application/x-ndjson": ".jsonl",
            "application/jsonl": ".jsonl",
        },
    ),
    Format(
        "source code",
        "code",
        ".c .h .cc .cpp .cxx .hh .hpp .hxx .ipp .cu .cs .go .java .php .py .pyi .pyw .rb .rake .rs .js .jsx "
        ".mjs .cjs .tsx .ts .mts .cts .sh .bash .zsh .fish .ps1 .bat .sql .kt .kts .swift .scala .lua .pl .pm "
        ".r .jl .dart .ex .exs .erl .hs .ml .mli .clj .lisp .el .f90 .f95 .pas .vb .groovy .gradle .m .mm "
        ".proto .thrift .graphql .css .scss .less .tf .hcl .cmake .mk .asm .s .v .sv .vhd .zig .nim .d .cob "
        ".cbl .abap .sol .vue .svelte",
    ),
    Format("plain text", "plain", ".txt .text"),
)
"""The formats, in the order in which `ingest.parsing.detect` tries them. The last format accepts every text."""

READABLE = (
    f"The supported formats are {', '.join(format_.name for format_ in FORMATS[:-1])} and {FORMATS[-1].name}."
)
SUFFIXES = {media: suffix for format_ in FORMATS for media, suffix in format_.media_types.items()}
"""The suffixes of files by media type."""
_BY_SUFFIX = {suffix: format_ for format_ in FORMATS for suffix in format_.suffixes.split()}


def format_by_suffix(suffix: str) -> Format | None:
    """Return the format of files with a suffix (in lower case, with its dot), or None."""
    return _BY_SUFFIX.get(suffix)
