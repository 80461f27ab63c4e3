"""An issuer of tokens (OAuth 2): its keys, the tokens that it signs, and the HTTPS server where clients get them."""

import json
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Mapping
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.api_jws import PyJWS

NAME, AUDIENCE = "https://issuer.test", "penstock"
NO_HEADERS: Mapping[str, Any] = {}
CLIENT, SECRET = "orders-eu", "it's a “secret”"


class Issuer:
    """Signs tokens with RSA ("rsa") and elliptic curves ("ec"); `lifetime_s` is that of its tokens."""

    def __init__(self, lifetime_s: float = 3600) -> None:
        self.lifetime_s = lifetime_s
        self.served = 0
        """Number of tokens that the server has issued."""

    @cached_property
    def rsa(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(65537, 2048)

    @cached_property
    def ec(self) -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    def claims(self, **other: Any) -> dict[str, Any]:
        """Returns the claims of a good token; `other` replaces some, or removes them by None."""
        now = int(time.time())
        good = {"iss": NAME, "aud": AUDIENCE, "sub": CLIENT, "iat": now, "exp": now + self.lifetime_s}
        return {name: value for name, value in (good | other).items() if value is not None}

    def token(
        self, *, key: Any = None, algorithm: str = "RS256", headers: Mapping[str, Any] = NO_HEADERS, **claims: Any
    ) -> str:
        """Returns a token with other claims; its header has the id of the key of the algorithm, unless changed."""
        given = {"kid": "ec" if algorithm.startswith("ES") else "rsa", **headers}
        signing = key or (self.ec if algorithm.startswith("ES") else self.rsa)
        payload = json.dumps(self.claims(**claims)).encode()
        return PyJWS().encode(payload, signing, algorithm, {k: v for k, v in given.items() if v is not None})

    @cached_property
    def keys(self) -> list[dict[str, Any]]:
        """The public keys, as JSON Web Keys."""
        return [
            json.loads(RSAAlgorithm.to_jwk(self.rsa.public_key())) | {"kid": "rsa", "use": "sig"},
            json.loads(ECAlgorithm.to_jwk(self.ec.public_key())) | {"kid": "ec", "alg": "ES256"},
        ]

    @property
    def key_set(self) -> bytes:
        return json.dumps({"keys": self.keys}).encode()


class IssuerServer:
    """Serves the keys of an issuer at /keys, and its tokens at /token, over HTTPS."""

    def __init__(self, issuer: Issuer, certificate: Path) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(200, issuer.key_set)

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                credentials = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                name, _, secret = credentials.partition(":")
                if form["grant_type"] != ["client_credentials"] or unquote_plus(secret) != SECRET:
                    self.answer(401, b'{"error":"invalid_client"}')
                    return
                issuer.served += 1
                token = issuer.token(sub=unquote_plus(name), scope=" ".join(form.get("scope", [])) or None)
                answer = {"access_token": token, "token_type": "Bearer", "expires_in": issuer.lifetime_s}
                self.answer(200, json.dumps(answer).encode())

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Logs nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
