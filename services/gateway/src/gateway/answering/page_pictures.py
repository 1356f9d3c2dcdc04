"""Load pictures of the pages of the selected passages, for models that accept pictures."""

import base64

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError
from servicekit.principal import Principal

from gateway.answering import budget
from gateway.answering.conversation_window import Fit
from gateway.answering.timeline import Timeline
from gateway.domain import Passage, Picture, Turn
from gateway.ports.answering import Pictures

MAX_PICTURES = 5
"""The maximum number of pictures of a turn. Ingest limits a page's picture to 768 KiB."""

NOT_ACCEPTED = "The model does not accept pictures: it got the text of the pages."
NOT_JUDGED = "The context's detectors cannot judge pictures: the model got the text of the pages."
NOT_STORED = "No pictures of these pages are stored: the model got their text."
NO_ROOM = "The model's window has no room for pictures: the model got the text of the pages."
NOT_FETCHED = "The pictures of the pages could not be fetched: the model got their text."

_log = structlog.get_logger(__name__)


class PagePictures:
    """Loads the pictures for a turn's model.

    Args:
        pictures: The store of the pictures.
    """

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures

    async def load(
        self, turn: Turn, fit: Fit, timeline: Timeline, deadline: Deadline
    ) -> tuple[tuple[Picture, ...], str]:
        """Return pictures of the passages' pages, best first, and the reason for missing pictures, or "".

        If the pictures cannot be loaded, the turn does not fail. The model then receives only the pages' text.
        """
        passages = fit.selection.passages if fit.selection else ()
        if not turn.prompting.pictures or not passages:
            return (), ""
        pages = _pages(passages)
        max_pictures = min(MAX_PICTURES, fit.free_tokens // budget.PICTURE_TOKENS)
        reasons = (
            (not fit.takes_pictures, NOT_ACCEPTED),
            (bool(turn.detectors.context), NOT_JUDGED),
            (not pages, NOT_STORED),
            (max_pictures <= 0, NO_ROOM),
        )
        for applies, reason in reasons:
            if applies:
                return (), reason
        try:
            with timeline.step("load pictures"):
                found = await self._read_pages(turn.principal, pages[:max_pictures], deadline)
        except CausewayError as error:
            _log.warning("pictures were not fetched", error=error.message)
            return (), NOT_FETCHED
        if not found:
            return (), NOT_STORED
        missing = len(pages) - len(found)
        return found, f"Pages whose pictures the model did not get: {missing}." if missing else ""

    async def _read_pages(
        self, principal: Principal, pages: list[Passage], deadline: Deadline
    ) -> tuple[Picture, ...]:
        # Sequential calls are fast enough: at most `MAX_PICTURES` round trips.
        jpegs = [(page, await self._pictures.read(principal, page, deadline)) for page in pages]
        return tuple(
            Picture(page.sourcepage, f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}")
            for page, jpeg in jpegs
            if jpeg is not None
        )


def _pages(passages: tuple[Passage, ...]) -> list[Passage]:
    """Return the first passage of each page that may have a picture, in the order of the passages."""
    pages: dict[tuple[str, str, int], Passage] = {}
    for passage in passages:
        if passage.has_pictures and passage.page:
            pages.setdefault((passage.index, passage.document_id, passage.page), passage)
    return list(pages.values())
