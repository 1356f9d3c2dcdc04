import httpx
from fastapi.openapi.models import OpenAPI
from gateway.dialects.rag_chat.registration import Stages

CHATS = (
    "/v1/chat/completions",
    "/openai/deployments/{model}/chat/completions",
    "/v1/completions",
    "/v1/responses",
    *Stages().single_stage_paths(),
    *Stages().bare_paths(),
)

FRONT_ENDS = (
    *(
        "/config",
        "/auth_setup",
        "/me",
        "/speech",
        "/upload",
        "/list_uploaded",
        "/delete_uploaded",
        "/content/{path}",
    ),
    *("/chat_history", "/chat_history/sessions", "/chat_history/sessions/{session}"),
)

ORCHESTRATOR = tuple(
    f"/api/v2/{path}"
    for path in (
        "chat/completions-detection",
        "text/completions-detection",
        "text/generation-detection",
        "text/detection/content",
        "text/detection/stream-content",
        "text/detection/chat",
        "text/detection/context",
        "text/detection/generated",
    )
)


async def test_the_document_is_valid_and_lists_every_route(client: httpx.AsyncClient) -> None:
    """The document is valid, lists every route, and is the same at the second request."""
    document = (await client.get("/openapi.json")).json()
    OpenAPI.model_validate(document)
    assert set(document["paths"]) == {
        *CHATS,
        "/documents",
        "/index",
        "/indexes",
        "/indexes/{index}",
        "/indexes/{index}/documents",
        "/indexes/{index}/documents/delete",
        "/indexes/{index}/rebuild",
        "/persist/{index}",
        "/load/{index}",
        "/snapshots",
        "/snapshots/{path}",
        "/users/{user}",
        "/indexes/{index}/documents/{document_id}/passages",
        "/indexes/{index}/documents/{document_id}/access",
        "/retrieve",
        "/mcp",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/{path}",
        "/v1/responses/compact",
        "/v1/responses/input_tokens",
        "/v1/responses/{response_id}",
        "/v1/responses/{response_id}/cancel",
        "/v1/responses/{response_id}/input_items",
        "/responses",
        "/responses/{response_id}",
        "/responses/{response_id}/cancel",
        "/v1/conversations",
        "/v1/conversations/{conversation_id}",
        "/v1/conversations/{conversation_id}/items",
        "/v1/conversations/{conversation_id}/items/{item_id}",
        "/v1/models",
        "/v1/models/{model}",
        "/v1/embeddings",
        "/openai/deployments/{model}/embeddings",
        "/health",
        "/metrics",
        "/jobs",
        "/jobs/lanes",
        "/jobs/dead",
        "/jobs/dead/replay",
        "/jobs/{job_id}",
        "/jobs/{job_id}/cancel",
        "/jobs/{job_id}/events",
        *ORCHESTRATOR,
        "/detectors",
        *FRONT_ENDS,
        "/healthz",
        "/readyz",
    }
    assert (await client.get("/openapi.json")).json() == document


async def test_chat_routes_have_examples_and_statuses(client: httpx.AsyncClient) -> None:
    """Each chat route has a body with an example, and lists the statuses of its responses."""
    paths = (await client.get("/openapi.json")).json()["paths"]
    for path in CHATS:
        operation = paths[path]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        field = {"/v1/completions": "prompt", "/v1/responses": "input"}.get(path, "messages")
        assert field in schema["properties"]
        assert schema["example"][field]
        assert {"200", "400", "404", "413", "415", "503"} <= set(operation["responses"])


async def test_examples_are_valid_requests(client: httpx.AsyncClient) -> None:
    """Each example is a valid request for an index that does not exist in this test."""
    paths = (await client.get("/openapi.json")).json()["paths"]
    for path in CHATS:
        example = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]["example"]
        response = await client.post(path, json=example)
        assert response.status_code == 404
        assert "handbook" in response.text


async def test_the_listed_statuses_are_correct(client: httpx.AsyncClient) -> None:
    """Only uploads and the guardrails' routes list 422, and the statuses of documents and jobs are listed."""
    document = (await client.get("/openapi.json")).json()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("422" in operation["responses"]) == (path == "/upload" or path.startswith("/api/v2/")), path
    responses = document["paths"]["/documents"]["post"]["responses"]
    assert {"202", "400", "413", "415", "503"} <= set(responses)
    assert "404" in document["paths"]["/jobs/{job_id}"]["get"]["responses"]


async def test_the_errors_401_and_403_have_the_format_of_the_route(client: httpx.AsyncClient) -> None:
    """The errors 401 and 403 of a chat have the format of its other errors."""
    paths = (await client.get("/openapi.json")).json()["paths"]
    for path in CHATS:
        responses = paths[path]["post"]["responses"]
        assert responses["401"]["content"] == responses["403"]["content"] == responses["400"]["content"], path


async def test_the_page_of_the_api_is_served(client: httpx.AsyncClient) -> None:
    """The page `/docs` loads the OpenAPI document."""
    response = await client.get("/docs")
    assert response.status_code == 200
    assert "/openapi.json" in response.text


async def test_every_tag_has_a_description(client: httpx.AsyncClient) -> None:
    """Each used tag has one description, and each operation has a summary."""
    document = (await client.get("/openapi.json")).json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    used = {tag for operation in operations for tag in operation["tags"]}
    explained = [tag["name"] for tag in document["tags"] if tag["description"]]
    assert sorted(explained) == sorted(used)
    assert all(operation["summary"] for operation in operations)
