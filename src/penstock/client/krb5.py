"""Functions of libkrb5 that GSS-API does not have, through ctypes: the realm of a host, and removing tickets."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.foundation.gss import load_gssapi


def realm_of(host: str) -> str:
    """Returns the realm of a host by [domain_realm] in krb5.conf; empty if it has none, and the KDC must know it."""
    with _context() as (krb5, context):
        realms = ctypes.POINTER(ctypes.c_char_p)()
        if krb5 is None or krb5.krb5_get_host_realm(context, host.encode(), ctypes.byref(realms)):
            return ""
        realm = (realms[0] or b"").decode()
        krb5.krb5_free_host_realm(context, realms)
        return realm


def destroy_tickets(cache: str) -> None:
    """Removes all tickets of a cache."""
    with _context() as (krb5, context):
        found = ctypes.c_void_p()
        if krb5 is not None and not krb5.krb5_cc_resolve(context, cache.encode(), ctypes.byref(found)):
            krb5.krb5_cc_destroy(context, found)


@contextmanager
def _context() -> Iterator[tuple[Any, ctypes.c_void_p]]:
    """Yields the library that `gssapi` is linked to, with a context; None if it is not MIT's, as in macOS."""
    context = ctypes.c_void_p()
    krb5: Any = None
    try:
        krb5 = ctypes.CDLL(load_gssapi().raw.misc.__file__)
        if krb5.krb5_init_context(ctypes.byref(context)):
            krb5 = None
    except (OSError, AttributeError):
        krb5 = None
    try:
        yield krb5, context
    finally:
        if krb5 is not None:
            krb5.krb5_free_context(context)
