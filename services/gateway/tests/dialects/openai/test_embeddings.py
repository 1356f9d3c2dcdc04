import base64
import json
import struct
from typing import Any

import pytest
from gateway.dialects.openai import embeddings as openai_embeddings
from gateway.domain.embeddings import EmbeddingModel, Embeddings
from servicekit.errors import InvalidRequest


def parse(**members: Any) -> openai_embeddings.EmbeddingRequest:
    return openai_embeddings.parse(json.dumps(members).encode())


def test_a_request_is_parsed() -> None:
    """A request has one text or several, an encoding and dimensions. Unknown members are ignored."""
    one = parse(model="m", input="a", user="u")
    assert (one.model, one.texts, one.in_base64, one.dimensions) == ("m", ("a",), False, None)
    several = parse(input=["a", "b"], encoding_format="base64", dimensions=2)
    assert (several.model, several.texts, several.in_base64, several.dimensions) == ("", ("a", "b"), True, 2)


def test_token_ids_are_decoded() -> None:
    """A list of token ids represents a text, also in a list with texts."""
    assert parse(input=[9906, 289, 9603, 509]).texts == ("Hello w\u00f6rld",)
    assert parse(input=[[9906], [289, 9603, 509], "a"]).texts == ("Hello", " w\u00f6rld", "a")
    assert parse(input=[[9906, 509 - 1, 160]]).texts[0].startswith("Hello")  # a character that was cut


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "input must be"),
        ({"input": None}, "input must be"),
        ({"input": []}, "input must be"),
        ({"input": {}}, "input must be"),
        ({"input": ""}, "input must not be blank"),
        ({"input": ["a", " "]}, "input[1] must not be blank"),
        ({"input": [1, "a"]}, "input must be a text, or a list of token ids"),
        ({"input": ["a", [1, True]]}, "input[1] must be a text, or a list of token ids"),
        ({"input": [True]}, "input must be a text"),
        ({"input": [9906, -1]}, "input has an id that is not a token of cl100k_base"),
        ({"input": [[9906], [10**20]]}, "input[1] has an id that is not a token of cl100k_base"),
        ({"input": [[9906], [100256]]}, "input[1] has an id that is not a token of cl100k_base"),
        ({"input": [220] * 3}, "input must not be blank"),
        ({"input": [[]]}, "input must not be blank"),
        ({"input": [1] * 100_001}, "100000"),
        ({"input": ["a", None]}, "input[1] must be a text"),
        ({"input": ["a"] * 2049}, "2048"),
        ({"input": "x" * 100_001}, "100000"),
        ({"input": "\ud800 and more"}, "JSON"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": -1}, "dimensions"),
        ({"input": "a", "dimensions": "2"}, "dimensions"),
        ({"input": "a", "dimensions": 10**30}, "dimensions"),
        ({"input": "a", "model": 1}, "model"),
    ],
)
def test_invalid_requests_are_refused(members: dict[str, Any], message: str) -> None:
    """The error says which member is wrong."""
    with pytest.raises(InvalidRequest) as caught:
        parse(**members)
    assert message in caught.value.message


def test_dimensions_are_the_models() -> None:
    """Dimensions other than the model's are refused. The retriever checks unknown models."""
    models = (EmbeddingModel("m", 2, 256), EmbeddingModel("n", 3, 256))
    for model, dimensions in (("", 2), ("m", 2), ("n", 3), ("n", None), ("unknown", 7)):
        members = {"input": "a", "model": model} | ({"dimensions": dimensions} if dimensions else {})
        openai_embeddings.check_dimensions(parse(**members), models)
    for model, dimensions in (("", 3), ("m", 1), ("n", 2)):
        with pytest.raises(InvalidRequest, match="dimensions"):
            openai_embeddings.check_dimensions(parse(input="a", model=model, dimensions=dimensions), models)


def test_the_response_has_numbers_or_base64() -> None:
    """The response is OpenAI's object. Base64 encodes little-endian 32-bit floats."""
    embeddings = Embeddings("m", ((0.5, -0.25), (1.0, 0.0)), 7)
    plain = json.loads(openai_embeddings.render(embeddings, parse(input=["a", "b"])))
    assert plain == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.5, -0.25]},
            {"object": "embedding", "index": 1, "embedding": [1.0, 0.0]},
        ],
        "model": "m",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    packed = json.loads(openai_embeddings.render(embeddings, parse(input=["a", "b"], encoding_format="base64")))
    assert struct.unpack("<2f", base64.b64decode(packed["data"][0]["embedding"])) == (0.5, -0.25)
