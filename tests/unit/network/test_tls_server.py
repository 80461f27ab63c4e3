"""TLS servers: handshakes with a deadline, and what is logged of those that fail."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.foundation.address import Address
from penstock.foundation.descriptors import Reserve
from penstock.foundation.tls_context import TlsContext
from penstock.foundation.tls_settings import TlsSettings
from penstock.network.listen_socket import bind_sockets
from penstock.network.tls_server import TlsServer
from tests.certificates import Certificates

HERE = Address.parse("127.0.0.1:0")


class Echo(asyncio.Protocol):
    """Sends what it receives."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Lab:
    def __init__(self, server: TlsServer, tls: TlsContext, trust: Path) -> None:
        self.port = server.sockets[0].getsockname()[1]
        self.server = server
        self.tls = tls
        self.context = ssl.create_default_context(cafile=str(trust))
        self.refused: list[str] = []
        self.is_refused = asyncio.Event()

    def on_refused(self, kind: str) -> None:
        self.refused.append(kind)
        self.is_refused.set()

    async def echo(self) -> bytes:
        """Returns the certificate of the server, after it has answered."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        return found

    async def until_refused(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.refused) < count:
                self.is_refused.clear()
                await self.is_refused.wait()


@asynccontextmanager
async def serving(folder: Path, **limits: Any) -> AsyncIterator[Lab]:
    made = Certificates(folder)
    tls = TlsContext(TlsSettings.parse({"ssl.keystore.location": str(made.server())}), server_side=True)
    sockets = await bind_sockets(HERE, "--listen")
    server = TlsServer(
        sockets,
        Echo,
        tls,
        name="TLS",
        refused=lambda kind: lab.on_refused(kind),
        reserve=Reserve.KAFKA_CONNECTIONS,
        **limits,
    )
    lab = Lab(server, tls, made.trust)
    await server.start_serving()
    try:
        yield lab
    finally:
        server.close()
        await asyncio.sleep(0)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "tls_handshake_failed" in record.message]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    """Runs a coroutine on each of the event loops: their TLS is not the same code."""
    return request.param


def test_a_handshake_that_never_ends_is_closed_by_its_deadline(
    run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(tmp_path, handshake_s=0.2) as lab:
            reader, writer = await asyncio.open_connection("127.0.0.1", lab.port)
            async with asyncio.timeout(60):
                assert await reader.read() == b""
            await lab.until_refused(1)
            writer.close()
            assert lab.refused == ["tls_handshake"]

    run(work())
    (line,) = logged(caplog)
    assert line == "tls_handshake_failed listener=TLS host=127.0.0.1 reason='the handshake took too long'"


def test_handshakes_that_never_end_do_not_keep_others_out(run: Any, tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, handshakes_max=3) as lab:
            idle = [await asyncio.open_connection("127.0.0.1", lab.port) for _ in range(8)]
            await lab.echo()
            await lab.until_refused(6)
            for _, writer in idle:
                writer.close()

    run(work())


def test_failures_are_logged_once_a_minute_for_each_host(
    run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(tmp_path) as lab:
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", lab.port)
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                async with asyncio.timeout(60):
                    await reader.read()
                writer.close()
            await lab.until_refused(5)

    run(work())
    (line,) = logged(caplog)
    assert "the client does not speak TLS (http request)" in line
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_client_that_does_not_trust_the_server_is_logged_with_the_reason(
    run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(tmp_path) as lab:
            stranger = Certificates(tmp_path / "stranger").trust
            # Not with asyncio, which closes the connection before it has sent the alert.
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", lab.port), ca_certs=str(stranger))
            await lab.until_refused(1)

    run(work())
    assert "tlsv1 alert unknown ca" in logged(caplog)[0]


def test_a_new_certificate_is_used_for_new_connections_while_old_ones_stay(run: Any, tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as lab:
            reader, writer = await asyncio.open_connection("127.0.0.1", lab.port, ssl=lab.context)
            first = await lab.echo()
            made = Certificates(tmp_path, "Another CA")
            made.server()
            lab.tls.reload()
            lab.context = ssl.create_default_context(cafile=str(made.trust))
            assert await lab.echo() != first
            writer.write(b"still")
            assert await reader.readexactly(5) == b"still"
            writer.close()

    run(work())


def test_a_server_that_is_closed_accepts_nothing_and_ends_handshakes(run: Any, tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as lab:
            reader, writer = await asyncio.open_connection("127.0.0.1", lab.port)
            await lab.echo()
            lab.server.close()
            async with asyncio.timeout(60):
                assert await reader.read() == b""
            writer.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", lab.port)

    run(work())
