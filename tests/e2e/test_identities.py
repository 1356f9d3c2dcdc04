"""Users with tokens and users with API keys, with the data directory of an earlier version."""

import json
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

ARCHIVE = Path(__file__).parent / "data" / "data-cd6aaaa.tar.xz"
STORED = json.loads(ARCHIVE.with_name("data-cd6aaaa.json").read_text())
AUDIENCE = "causeway"


class Issuer:
    """An OpenID provider with one signing key."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
        body = json.dumps({"keys": [{**public, "kid": "one", "use": "sig", "alg": "ES256"}]}).encode()

        class Keys(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Keys)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def headers(self, user: str) -> dict[str, str]:
        """Return request headers with a token of a user."""
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "exp": int(time.time()) + 600,
            "sub": user,
            "oid": f"own:{user}",
        }
        token = jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": "one"})
        return {"authorization": f"Bearer {token}"}

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of a gateway that accepts the tokens of this provider."""
        return {
            **STORED["settings"],
            "CAUSEWAY_QDRANT_URL": "",  # the directory has the indexes of the embedded engine
            "CAUSEWAY_OIDC_ISSUER": self.url,
            "CAUSEWAY_OIDC_JWKS_URL": f"{self.url}/keys",
            "CAUSEWAY_OIDC_AUDIENCE": json.dumps([AUDIENCE]),
            "CAUSEWAY_OIDC_DEFAULT_ROLES": '["ask", "ingest"]',
        }


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    new_issuer = Issuer()
    thread = threading.Thread(target=new_issuer.server.serve_forever)
    thread.start()
    yield new_issuer
    new_issuer.server.shutdown()
    thread.join()
    new_issuer.server.server_close()


def test_tokens_and_keys_of_users_with_the_same_name(
    issuer: Issuer, start_stack: Callable[..., AbstractContextManager[str]], tmp_path: Path
) -> None:
    """If API keys are enabled, a user with a token has no access to the data of the user with an API key and the
    same name. If only tokens are enabled, the data of the earlier version belongs to the user with the token, who
    can read and change it.
    """
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(tmp_path, filter="data")
    name, text = STORED["upload"]
    [(session, answers)] = STORED["history"].items()
    key_headers, path = {"api-key": STORED["keys"]["admin"]["key"]}, f"/chat_history/sessions/{session}"
    settings = issuer.settings
    with (
        start_stack(tmp_path, **{**settings, "CAUSEWAY_AUTH": "keys,oidc"}) as url,
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        token = issuer.headers("ann")
        assert http.get("/list_uploaded", headers=token).json() == []
        assert http.get(f"/content/{name}", headers=token).status_code == 404
        assert http.get(path, headers=token).status_code == 404
        assert http.get("/list_uploaded", headers=key_headers).json() == [name]
        assert http.get(path, headers=key_headers).json()["answers"] == answers
    (tmp_path / "stack.json").unlink(missing_ok=True)
    with (
        start_stack(tmp_path, **{**settings, "CAUSEWAY_AUTH": "oidc"}) as url,
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        token = issuer.headers("ann")
        assert http.get("/list_uploaded", headers=token).json() == [name]
        assert http.get(f"/content/{name}", headers=token).text == text
        assert http.get(path, headers=token).json()["answers"] == answers
        again = http.post("/upload", headers=token, files={"file": (name, b"The wombat sleeps at night.")})
        assert again.status_code in (200, 202), again.text
        assert http.get("/list_uploaded", headers=token).json() == [name]
        saved = http.post("/chat_history", headers=token, json={"id": session, "answers": answers})
        assert saved.status_code == 201, saved.text
        listed = http.get("/chat_history/sessions", headers=token).json()["sessions"]
        assert [each["id"] for each in listed] == [session]
        other = issuer.headers("bob")
        assert http.get("/list_uploaded", headers=other).json() == []
        assert http.get(path, headers=other).status_code == 404
