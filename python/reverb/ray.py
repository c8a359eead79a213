"""Servers on a Ray cluster: named actors that restart after a crash, and clients that find them by name.

    import ray
    import reverb
    import reverb.ray

    ray.init()
    servers = reverb.ray.start(
        "replay",
        [reverb.Table("replay", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 1_000_000, limiter)],
        num_servers=4,
        checkpoint_root="/shared/run42",
    )
    client = reverb.Client("ray://replay")  # also in tasks and actors of the same cluster

Each server is an actor with a process of its own, in which the native server runs. Ray restarts it after a crash of the
process or of its node; it then loads its last checkpoint and listens on the same port if that is free. Needs Ray, which
is imported with this module; see docs/deployment.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import errno
import importlib
import logging
import os
import re
import socket
from typing import Any
import zlib

from reverb import checkpointers, errors
from reverb.client import Client
from reverb.server import Server, Table

try:
    _ray: Any = importlib.import_module("ray")
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise ImportError("reverb.ray needs Ray, which is not installed: pip install ray", name="ray") from None

__all__ = ["Servers", "addresses", "client", "refresh", "start", "stop"]

_log = logging.getLogger("reverb")
_NAMESPACE = "reverb"
_SCHEME = "ray://"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# Above the ports of Ray's workers, below those that Linux gives to outgoing connections.
_FIRST_PORT, _NUM_PORTS = 20_000, 10_000


@dataclasses.dataclass(frozen=True)
class Servers:
    """The servers of one name. Can be pickled: it contains the name only."""

    name: str

    def addresses(self, *, timeout: float = 60.0) -> list[str]:
        """Returns where the servers listen; see reverb.ray.addresses()."""
        return addresses(self.name, timeout=timeout)

    def client(self, **options: Any) -> Client:
        """Returns a client of all servers; see reverb.ray.client()."""
        return client(self.name, **options)

    def describe(self, *, timeout: float | None = 60.0) -> list[dict[str, Any]]:
        """Returns the `address`, `pid` and `node_id` of each server; waits for those that are being restarted."""
        return _get([actor.describe.remote() for actor in _actors(self.name)], timeout, "answer")

    def checkpoint(self, *, timeout: float | None = None) -> list[str]:
        """Makes every server write a checkpoint, and returns the paths."""
        return _get([actor.checkpoint.remote() for actor in _actors(self.name)], timeout, "write a checkpoint")

    def stop(self, *, timeout: float = 60.0) -> None:
        """Stops the servers; see reverb.ray.stop()."""
        stop(self.name, timeout=timeout)


def start(
    name: str,
    tables: Sequence[Table],
    *,
    num_servers: int = 1,
    checkpoint_root: str | os.PathLike[str] | None = None,
    checkpoint_interval: float | None = 60.0,
    port: int | None = None,
    max_bytes: int | None = None,
    num_cpus: float = 1,
    memory: float | None = None,
    resources: Mapping[str, float] | None = None,
    scheduling_strategy: Any = "SPREAD",
    detached: bool = False,
    timeout: float | None = 300.0,
) -> Servers:
    """Starts servers as actors, and returns when all of them can be reached.

    Args:
        name: what clients find the servers by: letters, digits, "_", "-" and ".".
        tables: each server has all of them. Only their settings are used.
        num_servers: the number of servers, each of which has its own items, limiters and checkpoints.
        checkpoint_root: a directory that all nodes share; server i uses `server-i` below it, and loads its latest
            checkpoint when it starts. None: a server that is restarted is empty.
        checkpoint_interval: seconds between periodic checkpoints; None: only those that are requested.
        port: server i listens on port + i. None: on a port that follows from the name. If it is taken on the node, the
            server uses any free one.
        max_bytes: of each server, as in reverb.Server.
        num_cpus: what Ray reserves for each server.
        memory: bytes that Ray reserves for each server.
        resources: custom resources that Ray reserves for each server.
        scheduling_strategy: Ray's: "SPREAD" over the nodes, "DEFAULT", or an object such as
            `PlacementGroupSchedulingStrategy`.
        detached: the servers outlive the program that started them, until stop().
        timeout: seconds to wait for the servers; None: unlimited.

    Raises:
        ValueError: for invalid arguments, and if there are servers of that name.
        DeadlineExceededError: if the servers cannot be reached within `timeout`; none of them is left then.
    """
    _check_name(name)
    _check_ray()
    if num_servers < 1:
        raise ValueError(f"num_servers ({num_servers}) must be a positive integer")
    if not tables or not all(isinstance(table, Table) for table in tables):
        raise TypeError(f"tables must be a sequence of reverb.Table with at least one of them, got {tables!r}")
    if _names(name):
        raise ValueError(
            f'there are servers of the name "{name}" already; use reverb.ray.client("{name}"), '
            f'or end them with reverb.ray.stop("{name}")'
        )
    root = None if checkpoint_root is None else os.path.abspath(checkpoint_root)
    for index in range(num_servers):
        options: dict[str, Any] = {
            "name": f"{name}/{index}",
            "namespace": _NAMESPACE,
            "lifetime": "detached" if detached else None,
            "max_restarts": -1,
            "max_task_retries": -1,
            "max_concurrency": 8,  # a checkpoint does not delay those who ask for the address
            "num_cpus": num_cpus,
            "memory": memory,
            "resources": dict(resources or {}),
            "scheduling_strategy": scheduling_strategy,
        }
        preferred = _default_port(name, index) if port is None else port + index
        folder = None if root is None else os.path.join(root, f"server-{index}")
        # Ray keeps the arguments for restarts. A driver that ends without stop() takes its actors with it.
        handle = _ray.remote(**options)(_ServerActor).remote(
            f"{name}/{index}", list(tables), preferred, folder, checkpoint_interval, max_bytes, index + 1
        )
        _KEPT[name, index] = handle
    try:
        _get([actor.address.remote() for actor in _actors(name)], timeout, "start")
    except BaseException:
        with contextlib.suppress(ValueError):  # Ray forgets actors whose __init__ raises
            stop(name, timeout=0)
        _forget(name)
        raise
    return Servers(name)


def stop(name: str, *, timeout: float = 60.0) -> None:
    """Stops servers for good. Those with a `checkpoint_root` have `timeout` seconds to save their tables."""
    actors = _actors(name)
    if timeout > 0:
        _, late = _ray.wait([actor.stop.remote() for actor in actors], num_returns=len(actors), timeout=timeout)
        if late:
            _log.warning(
                '%d of the %d servers "%s" did not save their tables within %s s', len(late), len(actors), name, timeout
            )
    for actor in actors:
        _ray.kill(actor, no_restart=True)
    _forget(name)


def addresses(name: str, *, timeout: float = 60.0) -> list[str]:
    """Returns where servers listen, in their order, each as "host:port".

    Waits up to `timeout` seconds for servers that are being started or restarted; those that take longer are left out,
    with a warning in the log.

    Raises:
        ValueError: if no servers of that name were started.
        DeadlineExceededError: if none of them can be reached within `timeout`.
    """
    actors = _actors(name)
    requests = [actor.address.remote() for actor in actors]
    ready, late = _ray.wait(requests, num_returns=len(requests), timeout=timeout)
    found = []
    for request in requests:
        if request in ready:
            with contextlib.suppress(_ray.exceptions.RayActorError):  # it was stopped
                found.append(_ray.get(request))
    if not found:
        raise errors.DeadlineExceededError(f'none of the {len(actors)} servers "{name}" was reached within {timeout} s')
    if late:
        _log.warning('%d of the %d servers "%s" were not reached within %s s', len(late), len(actors), name, timeout)
    return found


def client(name: str, /, **options: Any) -> Client:
    """Returns a client of all servers of that name, the same as reverb.Client("ray://name"); `options` are its own."""
    return Client(_SCHEME + name, **options)


def refresh(client: Client, *, timeout: float = 10.0) -> bool:
    """Looks up the servers of a client again, and returns whether their addresses have changed.

    A server that was restarted on another node has another address. Call this when calls of the client wait for longer
    than expected, or now and then between batches: it takes one round trip to the actors.

    Raises:
        ValueError: if the client was not created with "ray://name".
    """
    name = getattr(client, "_ray_name", None)
    if name is None:
        raise ValueError(
            f'the client of {client.server_address} was not created with reverb.ray.client() or "ray://name"'
        )
    current = addresses(name, timeout=timeout)
    if current == client._ray_addresses:
        return False
    client._set_servers(current)
    client._ray_addresses = current
    return True


# Ray ends an actor that is not detached when its last handle is gone: start() keeps them.
_KEPT: dict[tuple[str, int], Any] = {}


def _forget(name: str) -> None:
    for key in [key for key in _KEPT if key[0] == name]:
        del _KEPT[key]


class _ServerActor:
    """The process of one server. Ray runs __init__ again in a new process after a crash."""

    def __init__(
        self,
        name: str,
        tables: list[Table],
        port: int,
        folder: str | None,
        interval: float | None,
        max_bytes: int | None,
        shard: int,
    ) -> None:
        checkpointer = None
        if folder is not None:
            checkpointer = checkpointers.DefaultCheckpointer(folder, interval=interval, on_stop=True)
        # A server that restarts empty keeps its shard.
        self._server = Server(
            tables, port=port if _is_free(port) else None, checkpointer=checkpointer, max_bytes=max_bytes, shard=shard
        )
        self._address = _join_address(_ray.util.get_node_ip_address(), self._server.port)
        loaded = self._server.loaded_checkpoint
        _log.info("server %s listens on %s%s", name, self._address, f", loaded from {loaded}" if loaded else "")

    def address(self) -> str:
        return self._address

    def describe(self) -> dict[str, Any]:
        return {"address": self._address, "pid": os.getpid(), "node_id": _ray.get_runtime_context().get_node_id()}

    def checkpoint(self) -> str:
        return self._server.localhost_client().checkpoint()

    def stop(self) -> None:
        self._server.stop()


def _join_address(host: str, port: int) -> str:
    """Returns "host:port", with brackets around an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_free(port: int) -> bool:
    # A machine without IPv6 cannot create or bind the first socket: the server listens on IPv4 only there.
    for family, host in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
                probe.listen()
                return True
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL):
                return False
    return False


def _default_port(name: str, index: int) -> int:
    return _FIRST_PORT + zlib.crc32(f"{name}/{index}".encode()) % _NUM_PORTS


def _check_ray() -> None:
    if not _ray.is_initialized():
        raise RuntimeError("Ray is not initialized in this process; call ray.init() first")


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, got {name!r} of type {type(name).__name__}")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f'the name of servers must consist of letters, digits, "_", "-" and ".", got {name!r}; the address of a '
            "cluster belongs to ray.init()"
        )


def _names(name: str) -> list[str]:
    """Returns the names of the servers' actors, in the order of their numbers."""
    named = _ray.util.list_named_actors(all_namespaces=True)
    found = [actor["name"] for actor in named if actor["namespace"] == _NAMESPACE]
    return sorted(
        (full for full in found if full.rpartition("/")[0] == name), key=lambda full: int(full.rpartition("/")[2])
    )


def _actors(name: str) -> list[Any]:
    _check_name(name)
    _check_ray()
    actors = []
    for full in _names(name):
        with contextlib.suppress(ValueError):  # it was stopped since
            actors.append(_ray.get_actor(full, namespace=_NAMESPACE))
    if not actors:
        raise ValueError(
            f'there are no servers of the name "{name}" on this Ray cluster; start them with '
            f'reverb.ray.start("{name}", tables)'
        )
    return actors


def _get(requests: list[Any], timeout: float | None, what: str) -> list[Any]:
    try:
        return list(_ray.get(requests, timeout=timeout))
    except _ray.exceptions.GetTimeoutError:
        raise errors.DeadlineExceededError(
            f"{len(requests)} servers did not {what} within {timeout} s; "
            "`ray status` shows whether resources are missing"
        ) from None


def _resolve(address: str) -> tuple[str, list[str]]:
    """Returns the name and the present addresses of "ray://name", for reverb.Client."""
    name = address.removeprefix(_SCHEME)
    return name, addresses(name)
