"""Events of model servers, with a secret in each place of an answer.

With CAUSEWAY_LEAKS=all, which `make test-leaks` sets, the tests split the answer into two tokens at every position
inside each secret. Otherwise they use one position. They always also use one token for each character.
"""

import json
import os
from typing import Any

from gateway.domain import Completion, Delta, Finish, Start, Usage
from servicekit.errors import UpstreamRejected

ALL = os.environ.get("CAUSEWAY_LEAKS") == "all"
BEFORE, AFTER = "Nothing of note, then ", " and so on."
SECRETS = ["123-45-6789", "4111111111111111", "ann@kelp.org", "AKIAIOSFODNN7EXAMPLE", "project tern"]
SECRET = SECRETS[0]
START = Start(b'{"id":"x","model":"m"}')
END: list[Any] = [Finish(0, "stop"), Usage(1, 1)]


def tokens(secret: str) -> list[list[str]]:
    """Return an answer that contains the secret, split into tokens in several ways: one token for each character,
    and two tokens for each cut inside the secret.
    """
    positions = [len(BEFORE) + cut for cut in range(1, len(secret))]
    text = BEFORE + secret + AFTER
    cuts = positions if ALL else positions[len(positions) // 2 :][:1]
    return [list(text), *([text[:cut], text[cut:]] for cut in cuts)]


def delta_with(members: dict[str, Any]) -> Delta:
    """Return an event that has members of a delta, but no text."""
    return Delta(0, "", json.dumps(members).encode())


def tool_call(arguments: str) -> Delta:
    """Return an event with the next piece of a tool call's arguments."""
    return delta_with({"tool_calls": [{"index": 0, "function": {"name": "find", "arguments": arguments}}]})


def alternative(token: str) -> Delta:
    """Return an event with a word that has the token as an alternative in its log probabilities."""
    probable = {"token": " yes", "top_logprobs": [{"token": token, "bytes": [ord(token)]}]}
    return Delta(0, " yes", b"", json.dumps({"logprobs": {"content": [probable]}}).encode())


def split_at_secret(text: str) -> tuple[str, str]:
    """Split a text inside the secret."""
    at = text.index(SECRET) + 4
    return text[:at], text[at:]


def completion(message: dict[str, Any], **members: Any) -> list[Any]:
    """Return the events of a unary answer of the model server."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "Yes.", **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [[Completion(json.dumps({"id": "x", "choices": [choice], "usage": usage, **members}).encode())]]


ARGUMENTS = json.dumps({"who": f"the {SECRET}", "n": 4111111111111111})
ESCAPED = ARGUMENTS.replace("-", "\\u002d")
NESTED = json.dumps({"inner": ARGUMENTS})
CALL = {"id": "c", "type": "function", "function": {"name": "find", "arguments": ARGUMENTS}}

PLACES: dict[str, list[Any]] = {
    "text": [[START], *([Delta(0, each)] for each in split_at_secret(f"It is {SECRET}.")), END],
    "content in parts": [[START], [delta_with({"content": [{"type": "text", "text": f"It is {SECRET}."}]})], END],
    "tool arguments": [[START], *([tool_call(each)] for each in split_at_secret(ARGUMENTS)), END],
    "escaped tool arguments": [[START], [tool_call(ESCAPED)], END],
    "nested tool arguments": [[START], [tool_call(NESTED)], END],
    "function arguments": [[START], [delta_with({"function_call": {"name": "f", "arguments": ARGUMENTS}})], END],
    "custom tool": [[START], [delta_with({"tool_calls": [{"index": 0, "custom": {"input": SECRET}}]})], END],
    "reasoning": [
        [START],
        *([delta_with({"reasoning_content": each})] for each in split_at_secret(f"Hm, {SECRET}.")),
        END,
    ],
    "refusal": [[START], *([delta_with({"refusal": each})] for each in split_at_secret(f"No {SECRET}.")), END],
    "delta member": [[START], [delta_with({"annotations": [{"title": SECRET}]}), Delta(0, "Yes.")], END],
    "top-level member": [[Start(json.dumps({"id": "x", "citations": [SECRET]}).encode())], [Delta(0, "Yes.")], END],
    "split over members": [
        [Start(json.dumps({"id": "x", "citations": list(split_at_secret(SECRET))}).encode())],
        [Delta(0, "Yes.")],
        END,
    ],
    "name of a member": [[Start(json.dumps({"id": "x", SECRET: 1}).encode())], [Delta(0, "Yes.")], END],
    "choice member": [[START], [Delta(0, "Yes.", b"", json.dumps({"note": SECRET}).encode())], END],
    "finish member": [[START, Delta(0, "Yes.")], [Finish(0, "stop", json.dumps({"note": SECRET}).encode())]],
    "usage": [
        [START, Delta(0, "Yes."), Finish(0, "stop")],
        [Usage(1, 1, json.dumps({"prompt_tokens": 1, "completion_tokens": 1, "note": SECRET}).encode())],
    ],
    "log probabilities": [
        [START, Delta(0, "Yes.", b"", json.dumps({"logprobs": {"content": [{"token": SECRET}]}}).encode())],
        END,
    ],
    "alternative tokens": [[START], *([alternative(each)] for each in SECRET), END],
    "error text": [UpstreamRejected("refused", status=400, body=json.dumps({"error": {"message": SECRET}}))],
    "plain error text": [UpstreamRejected("refused", status=503, body=f"no {SECRET}")],
    "error in a stream": [
        [START, Delta(0, "Yes. And so ")],
        UpstreamRejected("refused", status=500, body=json.dumps({"error": {"message": SECRET}})),
    ],
    "whole text": completion({"content": f"It is {SECRET}."}),
    "whole parts": completion({"content": [{"type": "text", "text": each} for each in split_at_secret(SECRET)]}),
    "whole tool arguments": completion({"tool_calls": [CALL]}),
    "whole reasoning": completion({"reasoning_content": SECRET}),
    "whole refusal": completion({"content": None, "refusal": SECRET}),
    "whole citations": completion({}, citations=[SECRET]),
    "whole usage": completion({}, usage={"prompt_tokens": 1, "completion_tokens": 1, "note": SECRET}),
    "follow-up": [[START], [Delta(0, f"Yes.\n<<Is it {SECRET}?>>")], END],
    "joined after a follow-up": [[START], [Delta(0, SECRET[:5] + "<<Why?>>" + SECRET[5:])], END],
}
FOLLOW_UP_PLACES = ("follow-up", "joined after a follow-up")
