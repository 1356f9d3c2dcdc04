"""Use background responses of the `openai` package as its users do, and print the results as JSON."""

import json
import os
import time
from typing import Any

from openai import OpenAI
from openai.types.responses import Response

QUESTION = "When will the pivot bearing be renewed?"
SEARCH: Any = [{"type": "file_search", "vector_store_ids": ["handbook"]}]
SECONDS = 60.0
PAUSE = 0.05


def main() -> None:
    """Poll a response, read its events again from each position, resume an abandoned stream, and cancel a
    response.
    """
    # The strict validation refuses values of wrong types.
    client = OpenAI(
        base_url=os.environ["CAUSEWAY_URL"] + "/v1",
        api_key=os.environ["CAUSEWAY_KEY"],
        max_retries=0,
        _strict_response_validation=True,
    )
    responses = client.responses
    found: dict[str, Any] = {}

    waiting = responses.create(model="extractive", input=QUESTION, tools=SEARCH, background=True)
    found["accepted"] = [waiting.status, waiting.background, waiting.output]
    answer = _wait_for_end(client, waiting)
    found["polled"] = [answer.status, answer.output_text]
    events = list(responses.retrieve(answer.id, stream=True))
    found["numbers"] = [event.sequence_number for event in events]
    found["first"], found["last"] = [event.type for event in events[:3]], events[-1].type
    found["again"] = [
        list(responses.retrieve(answer.id, stream=True, starting_after=after)) == events[after + 1 :]
        for after in range(len(events))
    ]

    with responses.create(model="extractive", input=QUESTION, tools=SEARCH, background=True, stream=True) as stream:
        left: Any = next(iter(stream))
    rest = list(responses.retrieve(left.response.id, stream=True, starting_after=left.sequence_number))
    found["resumed"] = [event.type for event in [left, *rest]] == [event.type for event in events]

    begun = responses.create(model="scripted", input="When is high water?", background=True)
    seen: list[Any] = []
    for event in responses.retrieve(begun.id, stream=True):
        seen.append(event)
        if event.type == "response.output_text.delta" and "cancelled" not in found:
            found["cancelled"] = responses.cancel(begun.id).status
    found["delta"], found["end"] = seen[-2].delta, [seen[-1].type, seen[-1].response.status]
    kept = responses.retrieve(begun.id)
    found["kept"] = [kept.status, kept.output_text]
    found["cancelled_again"] = responses.cancel(begun.id).status
    print(json.dumps(found))


def _wait_for_end(client: OpenAI, answer: Response) -> Response:
    """Wait until a response has ended, and return it."""
    end = time.monotonic() + SECONDS
    while answer.status in ("queued", "in_progress"):
        assert time.monotonic() < end, "the response did not end in time"
        time.sleep(PAUSE)
        answer = client.responses.retrieve(answer.id)
    return answer


if __name__ == "__main__":
    main()
