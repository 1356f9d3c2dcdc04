"""``causeway index``: the indexes, their settings, and rebuilds for another model or language."""

import enum
from typing import Annotated, Any

import typer
from causeway.cli import rebuilding, render
from causeway.cli.confirmation import Yes, confirmed
from causeway.cli.errors import UsageError
from causeway.cli.library import Library, run_with_library
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url

_OWN_SETTINGS = ("chunk_tokens", "chunk_overlap", "fusion", "dense_weight", "expand", "ocr")
_LEGACY = "legacy: all words are treated as English until a rebuild"


class Fusion(enum.StrEnum):
    """The fusion of a hybrid search."""

    SCORES = "scores"
    RANKS = "ranks"


class Ocr(enum.StrEnum):
    """Whether text in images is recognised."""

    AUTO = "auto"
    OFF = "off"


Setting = enum.StrEnum("Setting", {name.upper(): name.replace("_", "-") for name in _OWN_SETTINGS})  # type: ignore[misc]  # from a tuple

Name = Annotated[str, typer.Argument(metavar="INDEX", help="The name of the index.", show_default=False)]
Embedding = Annotated[
    str,
    typer.Option(
        "--embedding",
        "-e",
        metavar="MODEL",
        help="The embedding model (docs/embeddings.md). Default: the platform's model; for a rebuild, the current "
        "one.",
        show_default=False,
    ),
]
Language = Annotated[
    str,
    typer.Option(
        "--language",
        metavar="LANGUAGE",
        help="Language for text search: auto (the language of each document), or a code such as de. Default: auto; "
        "for a rebuild, the current one.",
        show_default=False,
    ),
]
ChunkTokens = Annotated[
    int | None,
    typer.Option(
        min=16, max=8192, metavar="TOKENS", help="Maximum number of tokens of a passage. Applies to new documents."
    ),
]
ChunkOverlap = Annotated[
    int | None,
    typer.Option(
        min=0, max=8191, metavar="TOKENS", help="Maximum overlap of a passage with the previous one, in tokens."
    ),
]
FusionOption = Annotated[
    Fusion | None, typer.Option("--fusion", help="How hybrid searches combine their results by default.")
]
DenseWeight = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="WEIGHT", help="Default weight of the vectors in hybrid searches."),
]
Expand = Annotated[
    bool | None,
    typer.Option("--expand/--no-expand", help="Use query expansion in searches by default."),
]
OcrOption = Annotated[Ocr | None, typer.Option("--ocr", help="Recognise text in images. Applies to new documents.")]
Unset = Annotated[
    list[Setting] | None,
    typer.Option(
        "--unset",
        metavar="SETTING",
        help=f"Reset a setting to the platform's value: {', '.join(Setting)}. Repeatable.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Show the progress until the rebuild ends.")]

EXAMPLES = (
    "causeway index list",
    "causeway index show handbook",
    "causeway index create notes --embedding multilingual-e5-small --chunk-tokens 128",
    "causeway index set handbook --fusion ranks --dense-weight 0.3",
    "causeway index set handbook --unset fusion --unset dense-weight",
    "causeway index rebuild handbook --embedding multilingual-e5-small --wait",
    "causeway index rebuild handbook --language de --wait",
    "causeway index list --json | jq -r .index_name",
    "causeway index delete notes --yes",
)


def list_indexes(
    url: Url = None, data_dir: DataDir = DEFAULT_DATA_DIR, api_key: ApiKey = "", *, as_json: Json = False
) -> None:
    """List the indexes and their sizes.

    The sizes include only the documents that the key may see. With --json the command prints one object per index.
    """
    found = run_with_library(url, data_dir, api_key, lambda library: library.indexes())
    out = render.console()
    if as_json:
        for index in found:
            render.json_line(out, index)
        return
    if not found:
        render.line(out, "There are no indexes; `causeway ingest FILES --index NAME` creates an index.")
        return
    rows = [
        (
            str(index["index_name"]),
            f"{index['documents']:,}",
            f"{index['chunks']:,}",
            str(index["embedding"]),
            str(index["language"]),
            ", ".join(f"{name} {value}" for name, value in _own(index).items()),
        )
        for index in found
    ]
    render.table(out, ("Index", "Documents", "Passages", "Embedding model", "Language", "Own settings"), rows)


def show(
    name: Name,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """Show an index, its settings, its size and its last rebuild.

    With --json the command prints the object of GET /indexes/{index}, with the last rebuild in `rebuild`. `rebuild`
    is null if the index was never rebuilt or if the API key does not have the role admin.
    """

    async def read(library: Library) -> tuple[dict[str, Any], dict[str, Any] | None]:
        return await library.index(name), await library.last_rebuild(name)

    index, rebuild = run_with_library(url, data_dir, api_key, read)
    if as_json:
        render.json_line(render.console(), {**index, "rebuild": rebuild})
        return
    out = render.console()
    _show_settings(index, as_json=False)
    render.line(out, f"The index has {index['documents']:,} documents in {index['chunks']:,} passages.")
    if rebuild is not None:
        render.line(out, rebuilding.sentence(rebuild))


def create(
    name: Name,
    embedding: Embedding = "",
    language: Language = "",
    chunk_tokens: ChunkTokens = None,
    chunk_overlap: ChunkOverlap = None,
    fusion: FusionOption = None,
    dense_weight: DenseWeight = None,
    expand: Expand = None,
    ocr: OcrOption = None,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """Create an empty index with its own settings.

    A setting without an option has the platform's value. You need not create an index that uses only the platform's
    settings: the first document creates it.
    """
    settings = _settings(embedding, language, chunk_tokens, chunk_overlap, fusion, dense_weight, expand, ocr)
    created = run_with_library(url, data_dir, api_key, lambda library: library.create_index(name, settings))
    _show_settings(created, as_json=as_json)


def set_settings(
    name: Name,
    chunk_tokens: ChunkTokens = None,
    chunk_overlap: ChunkOverlap = None,
    fusion: FusionOption = None,
    dense_weight: DenseWeight = None,
    expand: Expand = None,
    ocr: OcrOption = None,
    unset: Unset = None,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """Change settings of an index.

    The other settings and the passages do not change. To change the embedding model or the language, use `causeway
    index rebuild`.
    """
    settings: dict[str, object] = _settings("", "", chunk_tokens, chunk_overlap, fusion, dense_weight, expand, ocr)
    removed = {setting.value.replace("-", "_") for setting in unset or ()}
    if both := sorted(removed & settings.keys()):
        raise UsageError(f"{both[0].replace('_', '-')} is both set and unset; use only one of the two options")
    if not settings and not removed:
        raise UsageError("name a setting to change, or use --unset")
    changes = {**settings, **dict.fromkeys(removed)}
    updated = run_with_library(url, data_dir, api_key, lambda library: library.update_index(name, changes))
    _show_settings(updated, as_json=as_json)


def rebuild(
    name: Name,
    embedding: Embedding = "",
    language: Language = "",
    chunk_tokens: ChunkTokens = None,
    chunk_overlap: ChunkOverlap = None,
    fusion: FusionOption = None,
    dense_weight: DenseWeight = None,
    expand: Expand = None,
    ocr: OcrOption = None,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Rebuild an index with another model or language.

    Settings without an option do not change. The platform rebuilds the index in the background. During the rebuild,
    the old index answers searches and accepts documents. At the end, the new index replaces it in one step. With
    --wait the command shows the progress. If the same rebuild is already running, the command shows the progress of
    that rebuild. Ctrl-C ends the command, not the rebuild. The exit code is 1 if the rebuild failed. With --json it
    prints the object of GET /indexes/{index}/rebuild.
    """
    settings = _settings(embedding, language, chunk_tokens, chunk_overlap, fusion, dense_weight, expand, ocr)
    err = render.console(stderr=True)

    async def begin(library: Library) -> dict[str, Any]:
        started = await library.rebuild(name, settings)
        return await rebuilding.wait_for_rebuild(library, name, started, err) if wait else started

    last = run_with_library(url, data_dir, api_key, begin)
    if as_json:
        render.json_line(render.console(), last)
    else:
        render.line(render.console(), rebuilding.sentence(last), "red" if last["state"] == "failed" else None)
        if last["state"] == "running":
            render.line(render.console(), f"`causeway index show {name}` shows the progress.")
    if last["state"] == "failed":
        raise typer.Exit(1)


def delete(
    name: Name,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete an index with all its contents, irrevocably."""

    async def remove(library: Library) -> bool:
        if not yes:
            count = (await library.index(name))["documents"]
            question = f"Delete {name!r} with its {count:,} documents irrevocably?"
            if not confirmed(question, f"{name!r} has {count:,} documents; use --yes to delete it"):
                return False
        await library.delete_index(name)
        return True

    if not run_with_library(url, data_dir, api_key, remove):
        raise typer.Exit(1)
    if as_json:
        render.json_line(render.console(), {"index_name": name, "deleted": True})
    else:
        render.line(render.console(), f"deleted: {name}")


def _settings(
    embedding: str,
    language: str,
    chunk_tokens: int | None,
    chunk_overlap: int | None,
    fusion: Fusion | None,
    dense_weight: float | None,
    expand: bool | None,
    ocr: Ocr | None,
) -> dict[str, object]:
    """Return the settings of the command line in the format of the routes."""
    settings = (embedding or None, language or None, chunk_tokens, chunk_overlap, fusion, dense_weight, expand, ocr)
    return {
        name: value
        for name, value in zip(("embedding", "language", *_OWN_SETTINGS), settings, strict=True)
        if value is not None
    }


def _own(index: dict[str, Any]) -> dict[str, str]:
    words = {True: "yes", False: "no"}
    return {
        name.replace("_", "-"): words[value] if isinstance(value, bool) else str(value)
        for name in _OWN_SETTINGS
        if (value := index.get(name)) is not None
    }


def _show_settings(index: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        render.json_line(render.console(), index)
        return
    out = render.console()
    render.line(out, str(index["index_name"]), "bold")
    own = _own(index)
    language = str(index["language"])
    rows = [("embedding", str(index["embedding"])), ("language", _LEGACY if language == "legacy" else language)]
    rows += [(setting, own.get(setting, "platform default")) for setting in (*Setting,)]
    render.table(out, ("Setting", ""), rows)
