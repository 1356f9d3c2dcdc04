"""Each program of docs/clients.md runs with the published package of its client."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.model_answers import STREAM, Answer, Fault, chunk, completion, sse
from causeway_testing.recipes import Recipe, recipes

pytestmark = pytest.mark.asyncio(loop_scope="session")

HERE = Path(__file__).parent
RECIPES = recipes(HERE.parents[1] / "docs" / "clients.md")
MAVEN = (
    "--quiet",
    "--batch-mode",
    "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath",
)
ANSWER = "4 January to 19 March 2027"
EMBEDDED = "\n384"
RAGENGINE, CHAT_PROTOCOL = "KAITO RAGEngine", "AI chat protocol"
PIECE = "A beginning of "
Classpath = Callable[[str], Awaitable[str]]


@pytest.fixture(scope="session")
def classpath(platform: Any, tmp_path_factory: pytest.TempPathFactory) -> Classpath:
    """Return a function that returns the class path of a Java client. Maven resolves each class path once."""
    resolved: dict[str, str] = {}

    async def resolve(profile: str) -> str:
        if profile not in resolved:
            file = tmp_path_factory.mktemp("java") / "classpath"
            await platform.run("mvn", *MAVEN, "-f", HERE / "java", "-P", profile, f"-Dmdep.outputFile={file}")
            resolved[profile] = file.read_text()
        return resolved[profile]

    return resolve


def _parameters(*without: str) -> list[Any]:
    chosen = [recipe for name, recipe in RECIPES.items() if name not in without]
    return [pytest.param(each, id=each.name, marks=[pytest.mark.slow] if _is_slow(each) else []) for each in chosen]


def _is_slow(recipe: Recipe) -> bool:
    # A Go client takes minutes to compile, and Spring AI downloads most of Spring.
    return recipe.language == "go" or recipe.name == "Spring AI"


async def run(platform: Any, classpath: Classpath, recipe: Recipe, directory: Path) -> tuple[int, str]:
    """Run a recipe, and return its exit code and its output."""
    if recipe.missing:
        pytest.skip(f"the recipe does not run: {', '.join(recipe.missing)} is not installed")
    recipe.write(directory, HERE, platform.url, platform.key)
    if recipe.java_profile:
        (directory / "classpath").write_text(await classpath(recipe.java_profile))
    code, printed = await platform.run_to_end(*recipe.command, cwd=directory)
    return code, printed


@pytest.mark.parametrize("recipe", _parameters(RAGENGINE))
async def test_a_recipe_gets_a_unary_and_a_streamed_answer(
    platform: Any, classpath: Classpath, recipe: Recipe, tmp_path: Path
) -> None:
    """The unary and the streamed answer quote the index. If the recipe embeds texts, it gets vectors of the bundled
    model.
    """
    code, printed = await run(platform, classpath, recipe, tmp_path)
    assert code == 0, printed
    assert printed.count(ANSWER) == 2, printed
    assert ("all-minilm-l6-v2" in recipe.program) == (EMBEDDED in printed.replace("]384", "]\n384")), printed


async def test_the_recipe_of_ragengine(platform: Any, classpath: Classpath, tmp_path: Path) -> None:
    """Documents without ids get ids, each index is restored from its own snapshot, and a question is answered."""
    code, printed = await run(platform, classpath, RECIPES[RAGENGINE], tmp_path)
    assert code == 0, printed
    first, second, *texts, answer = printed.splitlines()
    assert first != second
    assert len(first) == len(second) == 64
    bearing, keys = "The spare bearing lies in shed 7.", "The keys hang in the office."
    assert texts == [bearing, keys, bearing]
    assert answer.startswith(bearing)


@pytest.mark.parametrize("recipe", _parameters(RAGENGINE, CHAT_PROTOCOL))
async def test_a_client_reports_a_broken_stream(
    platform: Any, classpath: Classpath, recipe: Recipe, tmp_path: Path
) -> None:
    """The client shows the text of a broken stream, and then fails."""
    broken = Answer((sse(chunk({"role": "assistant", "content": PIECE})), 0.05, Fault.CLOSE), content_type=STREAM)
    platform.model.script(completion("Whole."), broken)
    changed = Recipe(recipe.name, recipe.language, recipe.program.replace('"extractive"', '"scripted"'))
    assert changed != recipe
    code, printed = await run(platform, classpath, changed, tmp_path)
    assert "Whole." in printed
    assert PIECE in printed
    assert code != 0, printed
