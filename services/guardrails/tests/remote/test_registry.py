"""guardrails.remote.registry: the file of detectors can change while the service runs."""

from pathlib import Path

import aiohttp
import pytest
from causeway_testing.servers import eventually
from detection.domain import DetectorSpec
from detection.moderation.catalogue import Catalogue
from guardrails.remote.chunkers import Chunkers
from guardrails.remote.registry import RemoteDetectors
from servicekit.errors import InvalidRequest, NotFound

_HAP = "  hap: {kind: text_contents, url: 'http://a'}\n"
_TONE = "  tone: {kind: text_chat, url: 'http://b'}\n"


async def test_the_detectors_follow_the_file(tmp_path: Path) -> None:
    """The detectors follow the file: new ones appear, removed ones disappear, unchanged ones stay the same."""
    path = tmp_path / "detectors.yaml"
    path.write_text(f"detectors:\n{_HAP}")
    async with aiohttp.ClientSession() as session:
        factories = RemoteDetectors(session, Chunkers(), ())
        catalogue = Catalogue([], remote=factories.current)
        async with factories.load(path):
            (hap,) = factories.current()
            path.write_text(f"detectors:\n{_HAP}{_TONE}")
            await eventually(lambda: len(factories.current()) == 2)
            assert hap in factories.current()
            assert [info.detector_id for info in catalogue.infos()] == ["hap", "tone"]
            assert catalogue.rules([DetectorSpec("tone")])
            path.write_text("detectors:\n  hap: {kind: wrong}\n")
            path.write_text(f"detectors:\n{_HAP}")
            await eventually(lambda: factories.current() == (hap,))
            with pytest.raises(NotFound):
                catalogue.rules([DetectorSpec("tone")])


async def test_a_wrong_file_at_the_start_is_an_error(tmp_path: Path) -> None:
    """A missing file, or a file with an error, is refused at the start. The message names the file or the line."""
    path = tmp_path / "detectors.yaml"
    async with aiohttp.ClientSession() as session:
        factories = RemoteDetectors(session, Chunkers(), ())
        with pytest.raises(InvalidRequest, match=r"detectors\.yaml"):
            factories.load(path)
        path.write_text("detectors: 3\n")
        with pytest.raises(InvalidRequest, match="line 1, detectors"):
            factories.load(path)
