"""A proxy between clients and a server over TCP that breaks connections, or lets one side vanish for the other."""

from __future__ import annotations

import contextlib
import select
import socket
import threading

from conftest import join


def has_request(data: bytes) -> bool:
    """Returns whether frames of HTTP/2 contain HEADERS or DATA, and not only what acknowledges earlier responses."""
    while len(data) >= 9:
        if data[3] in (0, 1):
            return True
        data = data[9 + int.from_bytes(data[:3], "big") :]
    return False


class Proxy:
    """Forwards bytes between clients and a server, and breaks their connections on request."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._black_holes: set[socket.socket] = set()
        self._breaks_next_request = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.num_connections = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def break_next_request(self) -> None:
        """Lets the next request of a client reach the server, but not the response reach the client."""
        self._breaks_next_request = True

    def break_all(self) -> None:
        with self._lock:
            for end in self._ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def black_hole(self) -> None:
        """Drops silently, from now on, what either side sends over the present connections, and that it closes them."""
        with self._lock:
            self._black_holes |= self._ends

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        join(self._threads[0])
        self._listener.close()
        with self._lock:
            self._black_holes.clear()
        self.break_all()
        join(*self._threads)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.num_connections += 1
            self._threads.append(threading.Thread(target=self._relay, args=(client,), daemon=True))
            self._threads[-1].start()

    def _relay(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._server_port)) as server:
            ends = {client: server, server: client}
            with self._lock:
                self._ends |= ends.keys()
            try:
                self._pass_on(client, ends)
            finally:
                with self._lock:
                    self._ends -= ends.keys()
                    self._black_holes -= ends.keys()

    def _pass_on(self, client: socket.socket, ends: dict[socket.socket, socket.socket]) -> None:
        open_ends = list(ends)
        while open_ends:
            readable, _, _ = select.select(open_ends, [], [])
            for end in readable:
                try:
                    data = end.recv(1 << 16)
                except ConnectionError:
                    data = b""
                with self._lock:
                    is_dropped = end in self._black_holes
                if is_dropped:
                    if not data:
                        open_ends.remove(end)
                    continue
                if not data:
                    return
                ends[end].sendall(data)
                if end is client and self._breaks_next_request and has_request(data):
                    self._breaks_next_request = False
                    return
