import httpx


def test_health_and_readiness(http: httpx.Client) -> None:
    """The gateway is alive, and all services are ready."""
    assert http.get("/healthz").json() == {"status": "ok"}
    ready = http.get("/readyz", params={"verbose": ""})
    assert ready.status_code == 200
    services = ready.json()["services"]
    assert {"retriever", "generator", "guardrails", "nats"} <= services.keys()
    assert {entry["status"] for entry in services.values()} == {"ok"}


def test_the_openapi_page(http: httpx.Client) -> None:
    """The page `/docs` exists, and the OpenAPI document has the public routes."""
    assert "swagger" in http.get("/docs").text.lower()
    paths = http.get("/openapi.json").json()["paths"]
    assert {"/chat", "/chat/stream", "/2024-04/chat", "/v1/chat/completions", "/documents", "/jobs/{job_id}"} <= (
        paths.keys()
    )


def test_unknown_paths_and_methods(http: httpx.Client) -> None:
    """Responses with the statuses 404 and 405 are JSON with the reason."""
    assert http.get("/nowhere").status_code == 404
    assert "/nowhere" in http.get("/nowhere").json()["detail"]
    for path in ("/chat", "/v1/chat/completions", "/retrieve"):
        assert http.get(path).status_code == 405
        assert http.get(path).headers["allow"] == "POST"
        assert http.get(path).json()["error"]
