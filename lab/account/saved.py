"""The account on disk: one SQLite file; what one request changed is written in one transaction."""

from __future__ import annotations

import copyreg
import pickle
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from moto import backends
from moto.kms.utils import ECDSAPrivateKey, RSAPrivateKey

from lab.account.place import Key, Record


def _from_pem(kind: type, pem: bytes, rest: dict[str, Any]) -> Any:
    key = object.__new__(kind)
    vars(key).update(rest, private_key=serialization.load_pem_private_key(pem, None))
    return key


def _as_pem(key: Any) -> tuple[Any, ...]:
    plain = serialization.NoEncryption()
    pem = key.private_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    rest = {name: value for name, value in vars(key).items() if name != "private_key"}
    return _from_pem, (type(key), pem, rest)


for _kind in (RSAPrivateKey, ECDSAPrivateKey):  # each key of moto's KMS has one, and those of cryptography don't pickle
    copyreg.pickle(_kind, _as_pem)


# Those that moto has under the name by which they are called; what few others there are is not kept.
_SERVICES: frozenset[Any] = frozenset(backends.list_of_moto_modules())


class Saved:
    """The file; rows are moto's backends and our places, pickled."""

    def __init__(self, path: Path):
        self._file = sqlite3.connect(path, check_same_thread=False)
        # A killed process loses nothing that was written; only the machine's own end can.
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("CREATE TABLE IF NOT EXISTS part (name TEXT PRIMARY KEY, state BLOB NOT NULL)")
        self._file.commit()

    def load(self) -> dict[str, dict[Key, Record]]:
        """Puts moto's backends back where moto looks for them; returns our records by region."""
        ours = {}
        for name, state in self._file.execute("SELECT name, state FROM part"):
            kind, *rest = name.split()
            what = pickle.loads(state)  # noqa: S301 - this process' own file, as private as the program
            if kind == "ours":
                ours[rest[0]] = what
            else:
                service, account, region = rest
                backends.get_backend(service)[account][region] = what
        return ours

    def save(self, services: Iterable[str], ours: dict[str, dict[Key, Record]]) -> None:
        """Writes moto's backends of these services and these regions of ours."""
        parts: dict[str, Any] = {f"ours {region}": records for region, records in ours.items()}
        for service in _SERVICES.intersection(services):
            for account, region, one in backends.get_backend(service).iter_backends():
                parts[f"moto {service} {account} {region}"] = one
        rows = [(name, pickle.dumps(state, protocol=5)) for name, state in parts.items()]
        with self._file:
            self._file.executemany("INSERT OR REPLACE INTO part VALUES (?, ?)", rows)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
