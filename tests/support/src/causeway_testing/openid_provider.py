"""An OpenID Connect provider that signs a user in without a dialog, and enforces the rules of the flow."""

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
        user: The user that the next visit of the page signs in.
        roles: The user's roles.
        seconds: The lifetime of a token.
        renewed: The tokens for refresh tokens. Each refresh token can be used once.
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
                    self._answer(200, provider.public(parts.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                self._answer(*provider.redeem({name: value for name, [value] in parse_qs(body).items()}))

            def _redirect(self, target: str) -> None:
                self.send_response(302)
                self.send_header("location", target)
                self.end_headers()

            def _answer(self, status: int, said: dict[str, Any]) -> None:
                body = json.dumps(said).encode()
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

    def public(self, path: str) -> dict[str, Any]:
        """Return the configuration or the keys."""
        if path == "/keys":
            public = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
            return {"keys": [{**public, "kid": "one", "use": "sig", "alg": "ES256"}]}
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.tokens_url}/token",
            "jwks_uri": f"{self.url}/keys",
        }

    def authorize(self, asked: dict[str, str]) -> str:
        """Sign the user in, and return the URL of the redirect."""
        assert asked["client_id"] == CLIENT
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        code = secrets.token_urlsafe()
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def redeem(self, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return tokens for a code with a valid proof, or for a refresh token."""
        assert asked["client_id"] == CLIENT
        if asked["grant_type"] == "refresh_token":
            if asked["refresh_token"] not in self._refresh:
                return 400, {"error": "invalid_grant"}
            self._refresh.remove(asked["refresh_token"])
            self.renewed += 1
            return 200, self._tokens()
        begun = self._codes.pop(asked["code"], None)
        digest = hashlib.sha256(asked["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if begun is None or begun["code_challenge"] != challenge or begun["redirect_uri"] != asked["redirect_uri"]:
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
        """Return the settings of a gateway that accepts the tokens."""
        return {
            "CAUSEWAY_OIDC_ISSUER": self.url,
            "CAUSEWAY_OIDC_JWKS_URL": f"{self.url}/keys",
            "CAUSEWAY_OIDC_AUDIENCE": json.dumps([AUDIENCE]),
            "CAUSEWAY_OIDC_CLIENT_ID": CLIENT,
            "CAUSEWAY_OIDC_SCOPES": '["openid"]',
        }


@contextmanager
def serving() -> Iterator[Provider]:
    """Run a provider during the block."""
    made = Provider()
    threads = [threading.Thread(target=each.serve_forever) for each in made.servers]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        for server, thread in zip(made.servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
