"""Speaks HTTP to the admin port of a server, with and without http.client's help."""

import contextlib
import http.client
import json
import pathlib
import socket
import ssl

from frame import PATIENCE


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


class Admin:
    """The admin port of a server."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None):
        self.port = port
        self.tls = tls

    def connect(self) -> http.client.HTTPConnection:
        if self.tls is not None:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def get(self, path: str, *, method: str = "GET", token: str = "", **headers: str) -> Answer:
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.headers), answer.read())

    def info(self) -> dict:
        return self.get("/api/v1/info").json

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def send(self, text: bytes) -> bytes:
        """Sends bytes on a new connection, and returns all that comes back."""
        with self.raw() as connection:
            connection.sendall(text)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


class Events:
    """The events of /api/v1/stream, as they come."""

    def __init__(self, admin: Admin, path: str = "/api/v1/stream?interval=0.2", token: str = ""):
        self.connection = admin.connect()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()

    def next(self) -> dict | None:
        """Returns the object of the next event; None at the end of the stream."""
        name = None
        while line := self.answer.readline():
            if line.startswith(b"event: "):
                name = line[len(b"event: ") :].strip()
            elif line.startswith(b"data: "):
                assert name == b"info", name
                return json.loads(line[len(b"data: ") :])
        return None

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


def trusting(folder: pathlib.Path) -> ssl.SSLContext:
    """Returns a context that trusts the authority in the folder."""
    return ssl.create_default_context(cafile=str(folder / "ca.crt"))
