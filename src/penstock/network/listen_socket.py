"""Binds listen sockets, explains bind errors, and checks whether file descriptors are scarce."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from penstock.foundation.address import Address
from penstock.foundation.descriptors import Reserve, is_scarce
from penstock.foundation.errors import PenstockError

BACKLOG: Final = 1024


class CannotListen(PenstockError):
    """The address is in use, or is not an address of this machine."""


async def bind(factory: Callable[[], asyncio.BaseProtocol], address: Address, option: str) -> asyncio.Server:
    """Returns a server that is bound but does not accept connections yet. `option`: CLI option to name in errors."""
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(factory, address.host, address.port, backlog=BACKLOG, start_serving=False)
    except OSError as error:
        raise CannotListen(f"cannot listen on {address}: {_reason(error, option)}") from error


async def bind_sockets(address: Address, option: str) -> list[socket.socket]:
    """Returns sockets that are bound to all addresses of a host, but do not listen yet."""
    server = await bind(asyncio.Protocol, address, option)
    sockets = [sock.dup() for sock in server.sockets]
    server.close()
    return sockets


def is_scarce_for(transport: asyncio.BaseTransport, leave: Reserve) -> bool:
    """Returns whether an accepted connection cuts into the file descriptors that `leave` reserves for other uses."""
    sock = transport.get_extra_info("socket")
    return sock is not None and is_scarce(sock.fileno(), leave)


def _reason(error: OSError, option: str) -> str:
    if isinstance(error, socket.gaierror):
        return f"{(error.strerror or str(error)).lower()}; give {option} a host that this machine knows"
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    if error.errno == errno.EADDRINUSE:
        return f"{reason}; stop the process that listens there, or give another {option}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{reason}; give {option} an address of this machine, or 0.0.0.0 for all of them"
    return f"{reason}; give another {option}"
