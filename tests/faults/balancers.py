"""HAProxy and nginx with the configurations of docs/deployment.md, as processes in front of servers."""

from __future__ import annotations

import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from conftest import ROOT
from program import ServerProgram, free_port
import pytest

PAGE = ROOT / "docs" / "deployment.md"
NAMES = "abc"


def recipe(language: str) -> str:
    """Returns the block of the page in that language."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return text


def find(program: str) -> str:
    """Returns the path of a program, or skips the test."""
    path = shutil.which(program, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if path is None:
        pytest.skip(f"{program} is not installed; install the distribution's package")
    return path


def await_listener(port: int, process: subprocess.Popen, log: pathlib.Path) -> None:
    """Waits until the process accepts connections."""
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)  # polls the port
        else:
            return


class HaProxy:
    """HAProxy with the frontend and backend of the page."""

    notices_stalls = True

    def __init__(self, servers: list[ServerProgram], folder: pathlib.Path) -> None:
        path = find("haproxy")
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._socket = folder / "admin"
        text = recipe("haproxy")
        for name, server in zip(NAMES, servers, strict=True):
            text, count = re.subn(rf"{name}\.example\.com:8000", server.address, text)
            assert count == 1
        text = text.replace("bind :8000", f"bind {self.address}")
        config = folder / "haproxy.cfg"
        config.write_text(f"global\n    stats socket {self._socket} level admin\n\n{text}")
        log = folder / "haproxy.log"
        subprocess.run([path, "-c", "-f", config], check=True, capture_output=True)
        with log.open("wb") as out:
            self._process = subprocess.Popen([path, "-db", "-f", config], stdout=out, stderr=out)
        await_listener(self.port, self._process, log)

    def remove(self, index: int) -> None:
        """Takes a server out of service; its connections end."""
        name = f"reverb_servers/{NAMES[index]}"
        self.command(f"set server {name} state maint")
        self.command(f"shutdown sessions server {name}")

    def command(self, text: str) -> str:
        """Sends a command to the running process, and returns its answer."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self._socket))
            admin.sendall(text.encode() + b"\n")
            answer = b""
            while part := admin.recv(65536):
                answer += part
        return answer.decode()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


class Nginx:
    """Nginx with the upstream and server of the page."""

    notices_stalls = False

    def __init__(self, servers: list[ServerProgram], folder: pathlib.Path) -> None:
        path = find("nginx")
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._servers = dict(zip(NAMES, servers, strict=True))
        self._folder = folder
        self._config = folder / "nginx.conf"
        self._write()
        log = folder / "error.log"
        command = [path, "-p", str(folder), "-c", str(self._config), "-e", str(log)]
        subprocess.run([*command, "-t"], check=True, capture_output=True)
        self._process = subprocess.Popen(command)
        await_listener(self.port, self._process, log)

    def _write(self) -> None:
        text = recipe("nginx")
        for name in NAMES:
            line = rf"^ *server {name}\.example\.com:8000(.*)$"
            server = self._servers.get(name)
            text, count = re.subn(
                line, "" if server is None else rf"server {server.address}\1", text, flags=re.MULTILINE
            )
            assert count == 1
        text = text.replace("listen 8000 http2", f"listen {self.address} http2")
        folders = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{name}_temp_path {self._folder}/{name};\n" for name in folders)
        self._config.write_text(
            f"daemon off;\nworker_processes 1;\nuser root;\npid {self._folder}/pid;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{temporary}{text}}}\n"
        )

    def remove(self, index: int) -> None:
        """Takes a server out of the configuration and reloads it."""
        del self._servers[NAMES[index]]
        self._write()
        self._process.send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Ends the process and its workers."""
        self._process.terminate()  # at once, not gracefully
        self._process.wait()
