"""An OpenID Connect provider that signs a user in without a dialog, and checks the code flow with PKCE."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

AUDIENCE = "causeway"
CLIENT = "causeway-console"


class Provider:
    """A provider with one user, one public client and one key. Its token endpoint has another origin.

    Attributes:
        user: The user for whom the next tokens are issued.
        roles: The user's roles.
        seconds: The lifetime of a token in its response (`expires_in`). The token itself is valid for 600 seconds.
        renewed: The number of used refresh tokens. Each refresh token can be used once.
    """

    def __init__(self) -> None:
        self.user, self.roles = "ann", ["ask"]
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.seconds, self.renewed = 600, 0
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: set[str] = set()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                if parts.path == "/authorize":
                    self._redirect(
                        provider.authorize({name: value for name, [value] in parse_qs(parts.query).items()})
                    )
                else:
                    self._answer(200, provider.document(parts.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                self._answer(*provider.redeem({name: value for name, [value] in parse_qs(body).items()}))

            def _redirect(self, target: str) -> None:
                self.send_response(302)
                self.send_header("location", target)
                self.end_headers()

            def _answer(self, status: int, document: dict[str, Any]) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("access-control-allow-origin", "*")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
                pass

        self.servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
        self.url, self.tokens_url = (f"http://127.0.0.1:{each.server_address[1]}" for each in self.servers)

    def document(self, path: str) -> dict[str, Any]:
        """Return the provider's configuration, or its keys."""
        if path == "/keys":
            public = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
            return {"keys": [{**public, "kid": "one", "use": "sig", "alg": "ES256"}]}
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.tokens_url}/token",
            "jwks_uri": f"{self.url}/keys",
        }

    def authorize(self, request: dict[str, str]) -> str:
        """Sign the user in, and return the URL of the redirect."""
        assert request["client_id"] == CLIENT
        assert (request["response_type"], request["code_challenge_method"]) == ("code", "S256")
        code = secrets.token_urlsafe()
        self._codes[code] = request
        return f"{request['redirect_uri']}?{urlencode({'code': code, 'state': request['state']})}"

    def redeem(self, request: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return the status and the tokens for a code with a valid code verifier, or for a refresh token."""
        assert request["client_id"] == CLIENT
        if request["grant_type"] == "refresh_token":
            if request["refresh_token"] not in self._refresh:
                return 400, {"error": "invalid_grant"}
            self._refresh.remove(request["refresh_token"])
            self.renewed += 1
            return 200, self._tokens()
        authorization = self._codes.pop(request["code"], None)
        digest = hashlib.sha256(request["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        redirect_uri = request["redirect_uri"]
        if (
            authorization is None
            or authorization["code_challenge"] != challenge
            or authorization["redirect_uri"] != redirect_uri
        ):
            return 400, {"error": "invalid_grant"}
        return 200, self._tokens()

    def _tokens(self) -> dict[str, Any]:
        refresh = secrets.token_urlsafe()
        self._refresh.add(refresh)
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "exp": int(time.time()) + 600,
            "jti": secrets.token_urlsafe(),
            "sub": self.user,
            "roles": self.roles,
        }
        token = jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": "one"})
        return {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": self.seconds,
            "refresh_token": refresh,
        }

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings with which a gateway accepts the provider's tokens."""
        return {
            "CAUSEWAY_OIDC_ISSUER": self.url,
            "CAUSEWAY_OIDC_JWKS_URL": f"{self.url}/keys",
            "CAUSEWAY_OIDC_AUDIENCE": json.dumps([AUDIENCE]),
            "CAUSEWAY_OIDC_CLIENT_ID": CLIENT,
            "CAUSEWAY_OIDC_SCOPES": '["openid"]',
        }


@contextmanager
def run_provider() -> Iterator[Provider]:
    """Run a provider during the block."""
    provider = Provider()
    threads = [threading.Thread(target=each.serve_forever) for each in provider.servers]
    for thread in threads:
        thread.start()
    try:
        yield provider
    finally:
        for server, thread in zip(provider.servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
