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
    results: dict[str, Any] = {}

    waiting = responses.create(model="extractive", input=QUESTION, tools=SEARCH, background=True)
    results["accepted"] = [waiting.status, waiting.background, waiting.output]
    answer = _wait_for_end(client, waiting)
    results["polled"] = [answer.status, answer.output_text]
    events = list(responses.retrieve(answer.id, stream=True))
    results["numbers"] = [event.sequence_number for event in events]
    results["first"], results["last"] = [event.type for event in events[:3]], events[-1].type
    results["again"] = [
        list(responses.retrieve(answer.id, stream=True, starting_after=after)) == events[after + 1 :]
        for after in range(len(events))
    ]

    with responses.create(model="extractive", input=QUESTION, tools=SEARCH, background=True, stream=True) as stream:
        first_event: Any = next(iter(stream))
    rest = list(
        responses.retrieve(first_event.response.id, stream=True, starting_after=first_event.sequence_number)
    )
    results["resumed"] = [event.type for event in [first_event, *rest]] == [event.type for event in events]

    running = responses.create(model="scripted", input="When is high water?", background=True)
    seen: list[Any] = []
    for event in responses.retrieve(running.id, stream=True):
        seen.append(event)
        if event.type == "response.output_text.delta" and "cancelled" not in results:
            results["cancelled"] = responses.cancel(running.id).status
    results["delta"], results["end"] = seen[-2].delta, [seen[-1].type, seen[-1].response.status]
    cancelled = responses.retrieve(running.id)
    results["kept"] = [cancelled.status, cancelled.output_text]
    results["cancelled_again"] = responses.cancel(running.id).status
    print(json.dumps(results))


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
