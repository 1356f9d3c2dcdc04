"""``causeway index``: the indexes, their settings, and rebuilding them for another model or language."""

import enum
import json
from typing import Annotated, Any

import typer
from causeway.cli import rebuilding, render
from causeway.cli.confirmation import Yes, confirmed
from causeway.cli.errors import UsageError
from causeway.cli.library import Library, asked
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url

_OWN = ("chunk_tokens", "chunk_overlap", "fusion", "dense_weight", "expand", "ocr")
_LEGACY = "legacy: all words are taken as English ones, until a rebuild"


class Fusion(enum.StrEnum):
    """How a hybrid search fuses."""

    SCORES = "scores"
    RANKS = "ranks"


class Ocr(enum.StrEnum):
    """Whether text in images is recognised."""

    AUTO = "auto"
    OFF = "off"


Setting = enum.StrEnum("Setting", {name.upper(): name.replace("_", "-") for name in _OWN})  # type: ignore[misc]  # from a tuple

Name = Annotated[str, typer.Argument(metavar="INDEX", help="The index.", show_default=False)]
Embedding = Annotated[
    str, typer.Option("--embedding", "-e", help="The embedding model, one of GET /v1/models.", show_default=False)
]
Language = Annotated[
    str,
    typer.Option("--language", help="Of its texts for text search: auto, or a code like de.", show_default=False),
]
ChunkTokens = Annotated[
    int | None, typer.Option(min=16, max=8192, help="Most tokens of a passage that is added from then on.")
]
ChunkOverlap = Annotated[
    int | None, typer.Option(min=0, max=8191, help="Most tokens that a passage repeats of the one before.")
]
FusionOption = Annotated[Fusion | None, typer.Option("--fusion", help="How searches fuse that do not say.")]
DenseWeight = Annotated[
    float | None, typer.Option(min=0, max=1, help="What meaning counts for in searches that do not say.")
]
Expand = Annotated[
    bool | None, typer.Option("--expand/--no-expand", help="Search for further words, where nothing is said.")
]
OcrOption = Annotated[Ocr | None, typer.Option("--ocr", help="Whether text in images is read, for what is added.")]
Unset = Annotated[
    list[Setting] | None,
    typer.Option("--unset", metavar="SETTING", help=f"Is the platform's again, any of {', '.join(Setting)}."),
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Show how far it is, and end when it is over.")]

EXAMPLES = (
    "causeway index list",
    "causeway index show handbook",
    "causeway index create notes --embedding bge-m3 --chunk-tokens 128",
    "causeway index set handbook --fusion ranks --dense-weight 0.3",
    "causeway index set handbook --unset fusion --unset dense-weight",
    "causeway index rebuild handbook --embedding bge-m3 --wait",
    "causeway index rebuild handbook --language de --wait",
    "causeway index list --json | jq -r .index_name",
    "causeway index delete notes --yes",
)


def list_indexes(
    url: Url = None, data_dir: DataDir = DEFAULT_DATA_DIR, api_key: ApiKey = "", *, as_json: Json = False
) -> None:
    """List the indexes and how much they hold.

    It is what is open to the key that is counted. With --json one object an index.
    """
    found = asked(url, data_dir, api_key, lambda library: library.indexes())
    out = render.console()
    if as_json:
        for each in found:
            _print(each)
        return
    if not found:
        render.line(out, "There is no index; `causeway ingest FILES --index NAME` makes one.")
        return
    rows = [
        (
            str(each["index_name"]),
            f"{each['documents']:,}",
            f"{each['chunks']:,}",
            str(each["embedding"]),
            str(each["language"]),
            ", ".join(f"{name} {value}" for name, value in _own(each).items()),
        )
        for each in found
    ]
    render.table(
        out, ("Index", "Documents", "Passages", "Embedding model", "Language", "Settings of its own"), rows
    )


def show(
    name: Name,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """Show an index and its settings.

    And what it holds, and how its last rebuild went. With --json one object, as GET /indexes/{index} has it, with
    `rebuild`; that is null for keys without the role admin.
    """

    async def look(library: Library) -> tuple[dict[str, Any], dict[str, Any] | None]:
        return await library.index(name), await library.last_rebuild(name)

    index, rebuild = asked(url, data_dir, api_key, look)
    if as_json:
        _print({**index, "rebuild": rebuild})
        return
    out = render.console()
    _show_settings(index, as_json=False)
    render.line(out, f"It holds {index['documents']:,} documents in {index['chunks']:,} passages.")
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
    """Make an index with settings of its own.

    It holds nothing yet. Others are made by their first document.
    """
    wanted = _settings(embedding, language, chunk_tokens, chunk_overlap, fusion, dense_weight, expand, ocr)
    made = asked(url, data_dir, api_key, lambda library: library.create_index(name, wanted))
    _show_settings(made, as_json=as_json)


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

    The others stay, and so do its passages. Another embedding model, or another language, takes `causeway index
    rebuild`.
    """
    wanted: dict[str, object] = _settings("", "", chunk_tokens, chunk_overlap, fusion, dense_weight, expand, ocr)
    gone = {each.value.replace("-", "_") for each in unset or ()}
    if both := sorted(gone & wanted.keys()):
        raise UsageError(f"{both[0].replace('_', '-')} is both set and unset")
    if not wanted and not gone:
        raise UsageError("say what to set, or to --unset")
    changes = {**wanted, **dict.fromkeys(gone)}
    has = asked(url, data_dir, api_key, lambda library: library.update_index(name, changes))
    _show_settings(has, as_json=as_json)


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
    """Embed an index anew, in the background, for another model or language.

    It answers as it was, and takes documents, until it is replaced in one step. Said again while it goes on, with
    --wait, it is followed from there; Ctrl-C ends the waiting alone. Exit code 1 where it failed. With --json one
    object, as GET /indexes/{index}/rebuild has it.
    """
    wanted = _settings(embedding, language, chunk_tokens, chunk_overlap, fusion, dense_weight, expand, ocr)
    err = render.console(stderr=True)

    async def begin(library: Library) -> dict[str, Any]:
        begun = await library.rebuild(name, wanted)
        return await rebuilding.followed(library, name, begun, err) if wait else begun

    last = asked(url, data_dir, api_key, begin)
    if as_json:
        _print(last)
    else:
        render.line(render.console(), rebuilding.sentence(last), "red" if last["state"] == "failed" else None)
        if last["state"] == "running":
            render.line(render.console(), f"`causeway index show {name}` tells how far it is.")
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
    """Remove an index with everything in it, for good."""

    async def remove(library: Library) -> bool:
        if not yes:
            count = (await library.index(name))["documents"]
            question = f"Remove {name!r} with its {count:,} documents, for good?"
            if not confirmed(question, f"{name!r} holds {count:,} documents; say --yes to remove it"):
                return False
        await library.delete_index(name)
        return True

    if not asked(url, data_dir, api_key, remove):
        raise typer.Exit(1)
    if as_json:
        _print({"index_name": name, "deleted": True})
    else:
        render.line(render.console(), f"removed: {name}")


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
    """Those that were given, as the routes take them."""
    said = (embedding or None, language or None, chunk_tokens, chunk_overlap, fusion, dense_weight, expand, ocr)
    return {
        name: value for name, value in zip(("embedding", "language", *_OWN), said, strict=True) if value is not None
    }


def _own(index: dict[str, Any]) -> dict[str, str]:
    said = {True: "yes", False: "no"}
    return {
        name.replace("_", "-"): said[value] if isinstance(value, bool) else str(value)
        for name in _OWN
        if (value := index.get(name)) is not None
    }


def _show_settings(index: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        _print(index)
        return
    out = render.console()
    render.line(out, str(index["index_name"]), "bold")
    own = _own(index)
    language = str(index["language"])
    rows = [("embedding", str(index["embedding"])), ("language", _LEGACY if language == "legacy" else language)]
    rows += [(each, own.get(each, "as the platform is configured")) for each in (*Setting,)]
    render.table(out, ("Setting", ""), rows)


def _print(body: object) -> None:
    render.console().file.write(json.dumps(body, ensure_ascii=False) + "\n")
