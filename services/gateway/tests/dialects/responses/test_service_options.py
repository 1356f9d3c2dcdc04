"""Options for the service and the model server, and prompts."""

import json
from pathlib import Path
from typing import Any

import httpx
from causeway_testing import responses
from gateway.dialects.responses import service_options
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings

PATH = "/v1/responses"
ASSISTANTS = """
assistants:
  - {name: harbour, indexes: [docs], system_prompt: You answer visitors.}
"""


async def test_options_of_the_model_server(client: httpx.AsyncClient, fakes: Any) -> None:
    """The model server gets the user and the cache options, and the response repeats them."""
    texts = dict.fromkeys(service_options.FORWARDED, "ann")
    cache = {"mode": "explicit", "comparison_response_id": "resp_1"}
    answer = (await client.post(PATH, json={"input": "When?", **texts, "prompt_cache_options": cache})).json()
    parameters = json.loads(fakes.generator.prompts[0].parameters_json)
    assert parameters == texts | {"prompt_cache_options": {"mode": "explicit"}}
    assert {name: answer[name] for name in texts} == texts
    assert answer["prompt_cache_options"] == cache | {"ttl": "30m"}
    assert answer["prompt_cache_diagnostics"] == {"type": "unavailable"}
    bare = (await client.post(PATH, json={"input": "When?"})).json()
    assert json.loads(fakes.generator.prompts[1].parameters_json) == {}
    assert [bare[name] for name in ("user", "prompt_cache_options", "prompt_cache_diagnostics")] == [None] * 3


async def test_options_of_the_service(client: httpx.AsyncClient, fakes: Any) -> None:
    """The response has the supported options. Unsupported values are refused."""
    options = {"access_programs": {"cyber": "standard"}, "image": {"context_compression": "auto"}}
    answer = responses.response((await client.post(PATH, json={"input": "When?", **options})).json())
    assert (answer.access_programs.cyber, answer.image.context_compression) == ("standard", "disabled")
    wrong: dict[str, Any] = {
        "access_programs.cyber": {"cyber": "daybreak_red"},
        "image.context_compression": {"context_compression": "enabled"},
        "prompt_cache_options.prewarm": {"prewarm": True},
        "prompt.id": {},
        "prompt.version": {"id": "harbour", "version": "2"},
        "prompt.variables": {"id": "harbour", "variables": {"a": "b"}},
    }
    for param, value in wrong.items():
        refused = await client.post(PATH, json={"input": "When?", param.partition(".")[0]: value})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert len(fakes.generator.prompts) == 1


async def test_a_prompt_is_an_assistant(fakes: Any, settings: Settings, tmp_path: Path) -> None:
    """A prompt's id chooses the assistant of that name. An unknown id or another model is refused."""
    path = tmp_path / "frontends.yaml"
    path.write_text(ASSISTANTS)
    fakes.frontends = FrontendsFile(path)
    transport = httpx.ASGITransport(build_app(settings, fakes.services()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        response = await client.post(PATH, json={"input": "When?", "prompt": {"id": "harbour"}})
        answer = responses.response(response.json())
        assert (answer.prompt.id, answer.model) == ("harbour", "harbour")
        assert fakes.generator.prompts[0].messages[0].text.startswith("You answer visitors.")
        same = await client.post(PATH, json={"input": "When?", "prompt": {"id": "harbour"}, "model": "harbour"})
        assert same.status_code == 200
        for body, status, param, message in (
            ({"prompt": {"id": "unknown"}}, 404, "prompt.id", "there is no assistant"),
            (
                {"prompt": {"id": "harbour"}, "model": "m"},
                400,
                "model",
                "must be absent or the same name as prompt.id",
            ),
        ):
            refused = await client.post(PATH, json={"input": "When?", **body})
            assert (refused.status_code, refused.json()["error"]["param"]) == (status, param)
            assert message in refused.json()["error"]["message"]
