"""guardrails.detectors.registry: every built-in detector is available and documented."""

import re
from dataclasses import replace
from pathlib import Path

from causeway_testing.guardrails.detectors import resources
from detection.moderation.catalogue import Catalogue
from guardrails.detectors.presidio.detector import pii_processes
from guardrails.detectors.registry import Resources, built_in

_PAGE = Path(__file__).resolve().parents[4] / "docs" / "guardrails.md"


def _everything() -> Resources:
    """Return resources with which the optional detector also exists."""
    return replace(resources(), pii_processes=pii_processes(Path("python"), 1, 1))


def test_the_catalogue_lists_every_detector() -> None:
    """Each registered detector is listed once, with a description and a schema of its parameters."""
    factories = built_in(_everything())
    infos = Catalogue(factories).infos()
    assert [info.detector_id for info in infos] == sorted(factory.detector_id for factory in factories)
    assert all(info.description and info.params_schema for info in infos)


def test_pii_exists_only_with_a_python_for_it() -> None:
    """The detector `pii` exists only if a Python is configured for it. The other detectors do not need it."""
    names = [{factory.detector_id for factory in built_in(each)} for each in (_everything(), resources())]
    assert names[0] - names[1] == {"pii"}


def test_the_page_lists_every_detector() -> None:
    """The table of docs/guardrails.md names exactly the registered detectors."""
    table = _PAGE.read_text().partition("| id | finds |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(factory.detector_id for factory in built_in(_everything()))
