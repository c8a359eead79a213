"""TLS and tokens: who may use a server, and how a client proves who it is.

docs/operations.md describes the security model.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Sequence
from typing import Any, Union

from reverb import _core

__all__ = ["ClientTls", "ServerTls", "Token", "add_token", "read_tokens", "remove_token"]

_Path = Union[str, "os.PathLike[str]"]
_RIGHTS = ("read", "write", "admin")


@dataclasses.dataclass(frozen=True)
class ServerTls:
    """The files of a server that speaks TLS, in PEM. It reads them again when they change.

    Args:
        certificate: the server's certificate, with those of intermediate authorities after it.
        key: its private key.
        client_ca: clients must have a certificate that one of these authorities has signed; None: they need none.
    """

    certificate: _Path
    key: _Path
    client_ca: _Path | None = None


@dataclasses.dataclass(frozen=True)
class ClientTls:
    """How a client speaks TLS. It reads the files when it connects.

    Args:
        ca: the authorities that may sign the server's certificate, in PEM; None: those that the system trusts.
        certificate: this client's own, for servers that require one.
        key: the private key of `certificate`.
        server_name: the name that the server's certificate must have; None: the host of the address.
    """

    ca: _Path | None = None
    certificate: _Path | None = None
    key: _Path | None = None
    server_name: str | None = None


@dataclasses.dataclass(frozen=True)
class Token:
    """A token as its file describes it, without its text."""

    name: str
    rights: tuple[str, ...]
    tables: tuple[str, ...]
    expires: datetime.datetime | None
    max_streams: int | None
    max_bytes_per_second: int | None
    max_waiting_bytes: int | None


def add_token(
    path: _Path,
    name: str,
    *,
    rights: Sequence[str],
    tables: Sequence[str] = ("*",),
    expires: datetime.datetime | None = None,
    max_streams: int | None = None,
    max_bytes_per_second: int | None = None,
    max_waiting_bytes: int | None = None,
) -> str:
    """Adds a token to a file, which it creates if there is none, and returns its text.

    The file has a hash of the token, so that this is the only time that it can be seen. `reverb token new` does the same.

    Args:
        path: the tokens file of a server.
        name: of the token; appears in errors and logs.
        rights: some of "read", "write" and "admin".
        tables: patterns of the names of tables, with * and ?.
        expires: when it stops being valid, with a time zone; None: never.
        max_streams: writers and samplers that may use it at a time; None: any number.
        max_bytes_per_second: data that its clients may send and receive; faster ones are slowed down.
        max_waiting_bytes: data of its writers that may wait for tables; then they wait.
    """
    if isinstance(rights, str) or isinstance(tables, str):
        raise TypeError(f"rights and tables must be sequences of str, such as ['read'], got {rights!r} and {tables!r}")
    unknown = sorted(set(rights) - set(_RIGHTS))
    if unknown:
        raise ValueError(f"rights must be some of {', '.join(_RIGHTS)}, got {unknown[0]!r}")
    if expires is not None and expires.tzinfo is None:
        raise ValueError(f"expires ({expires!r}) must have a time zone, such as datetime.timezone.utc")
    return _core._add_token(
        os.fspath(path),
        name,
        [right in rights for right in _RIGHTS],
        list(tables),
        None if expires is None else int(expires.timestamp()),
        max_streams,
        max_bytes_per_second,
        max_waiting_bytes,
    )


def remove_token(path: _Path, name: str) -> None:
    """Removes a token. Running servers end its streams within seconds. RuntimeError if the file has none of that name."""
    _core._remove_token(os.fspath(path), name)


def read_tokens(path: _Path) -> list[Token]:
    """Returns the tokens of a file, in its order. ValueError names the line of a file that is damaged."""
    return [
        Token(
            name=name,
            rights=tuple(right for right, has in zip(_RIGHTS, has_rights) if has),
            tables=tuple(tables),
            expires=None if expires is None else datetime.datetime.fromtimestamp(expires, datetime.timezone.utc),
            max_streams=max_streams,
            max_bytes_per_second=max_bytes_per_second,
            max_waiting_bytes=max_waiting_bytes,
        )
        for (
            name,
            has_rights,
            tables,
            expires,
            max_streams,
            max_bytes_per_second,
            max_waiting_bytes,
        ) in _core._read_tokens(os.fspath(path))
    ]


def _text(path: _Path | None) -> str:
    return "" if path is None else os.path.abspath(os.fspath(path))


def _client_tls(tls: Any) -> list[str] | None:
    """The native form of Client(tls=): ca, certificate, key and server name."""
    if tls is None or tls is False:
        return None
    if tls is True:
        tls = ClientTls()
    elif isinstance(tls, (str, os.PathLike)):
        tls = ClientTls(ca=tls)
    if not isinstance(tls, ClientTls):
        raise TypeError(
            f"tls must be a reverb.ClientTls, the path of a CA, or True for the system's, got {tls!r} of type "
            f"{type(tls).__name__}"
        )
    return [_text(tls.ca), _text(tls.certificate), _text(tls.key), tls.server_name or ""]


def _server_tls(tls: Any) -> list[str] | None:
    """The native form of Server(tls=): certificate, key and client_ca."""
    if tls is None:
        return None
    if not isinstance(tls, ServerTls):
        raise TypeError(
            f"tls must be a reverb.ServerTls(certificate=…, key=…), got {tls!r} of type {type(tls).__name__}"
        )
    return [_text(tls.certificate), _text(tls.key), _text(tls.client_ca)]
