"""A Kerberos KDC for tests: MIT's krb5kdc, with a realm, files and a port of its own."""

import atexit
import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.clients.waiting import wait_until
from tests.ports import free_port

gssapi: Any = import_module("gssapi") if find_spec("gssapi") else None
"""The library, which is optional."""
REALM: Final = "PENSTOCK.TEST"
OTHER_REALM: Final = "OTHER.TEST"
"""A second realm, whose clients PENSTOCK.TEST trusts."""
SERVICE: Final = "kafka/127.0.0.1"
"""The principal of brokers of tests, by the address that clients connect to."""
_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
_PASSWORD: Final = "of the database"
TIMEOUT_S: Final = 120.0


def missing() -> str:
    """What tests with Kerberos need and this machine does not have; empty if it has everything."""
    if gssapi is None:
        return "gssapi is not installed: pip install 'penstock[kerberos]'"
    if any(shutil.which(name, path=_PATH) is None for name in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")):
        return "there is no KDC: apt-get install krb5-kdc krb5-admin-server krb5-user"
    return ""


class Kdc:
    """A KDC of two realms. `with Kdc(folder) as kdc: kdc.keytab("orders")`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.port = free_port()
        self.config = self.krb5_conf("krb5.conf")
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "kdc.log"
        lines = [
            f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{self.port}\nkdc_tcp_listen = 127.0.0.1:{self.port}\n[realms]"
        ]
        for realm in (REALM, OTHER_REALM):
            files = f"database_name = {folder}/{realm}\nkey_stash_file = {folder}/{realm}.stash"
            lines.append(f"{realm} = {{\n{files}\nacl_file = {folder}/none.acl\nmax_life = 10h\n}}")
        (folder / "kdc.conf").write_text("\n".join([*lines, "[logging]\nkdc = STDERR", ""]))
        for realm in (REALM, OTHER_REALM):
            self._run("kdb5_util", "-r", realm, "create", "-s", "-P", _PASSWORD)
        # Clients of the other realm get tickets of this one.
        for realm in (REALM, OTHER_REALM):
            self._admin(realm, f"addprinc -pw trust krbtgt/{REALM}@{OTHER_REALM}")
        self.start()

    def krb5_conf(self, name: str, *settings: str) -> Path:
        """Writes a file for clients and brokers, with more settings of libdefaults."""
        defaults = [
            f"default_realm = {REALM}",
            "dns_lookup_kdc = false",
            "dns_lookup_realm = false",
            # librdkafka, kafka-python and aiokafka would look for the name of the address.
            "dns_canonicalize_hostname = false",
            "rdns = false",
            "udp_preference_limit = 1",
            *settings,
        ]
        realms = [f"{realm} = {{\nkdc = 127.0.0.1:{self.port}\n}}" for realm in (REALM, OTHER_REALM)]
        file = self.folder / name
        file.write_text("\n".join(["[libdefaults]", *defaults, "[realms]", *realms, ""]))
        return file

    @property
    def environment(self) -> dict[str, str]:
        """Variables of brokers and clients."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5CCNAME": f"FILE:{self.folder / 'tickets'}",
            "KRB5RCACHEDIR": str(self.folder),
        }

    def start(self) -> None:
        assert self._process is None, "the KDC runs already"
        command = ["krb5kdc", "-n", "-r", REALM, "-r", OTHER_REALM, "-P", str(self.folder / "pid")]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, env=self._environment, stderr=log)
        atexit.register(self.stop)
        wait_until(lambda: self._is_ready(self._process), "the KDC is ready", pause_s=0.01)

    def _is_ready(self, process: "subprocess.Popen[bytes] | None") -> bool:
        log = self._log.read_text()
        assert process is not None
        assert process.poll() is None, log
        return "commencing operation" in log

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            atexit.unregister(self.stop)
            process.kill()
            process.wait(TIMEOUT_S)

    def __enter__(self) -> "Kdc":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def keytab(self, *principals: str, realm: str = REALM) -> Path:
        """Creates principals, or new keys of known ones; returns a keytab with their keys."""
        file = self.folder / f"{principals[0].replace('/', '-')}@{realm}.keytab"
        for principal in principals:
            if f"{principal}@{realm}" not in self._admin(realm, "listprincs").split():
                self._admin(realm, f"addprinc -randkey {principal}")
            self._admin(realm, f"ktadd -k {file} {principal}")
        return file

    def kinit(self, principal: str, keytab: Path, *options: str, cache: Path | None = None) -> Path:
        """Gets a ticket; returns the file with it."""
        cache = cache or self.folder / "tickets"
        self._run("kinit", *options, "-c", str(cache), "-k", "-t", str(keytab), principal)
        return cache

    def _admin(self, realm: str, query: str) -> str:
        return self._run("kadmin.local", "-r", realm, "-q", query)

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [program, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def _environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            **self.environment,
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "PATH": _PATH,
            "LC_ALL": "C",
        }
