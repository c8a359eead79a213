"""reverb.ray without Ray: what its functions do with what Ray returns. tests_frameworks/test_ray_servers.py uses Ray."""

import errno
import importlib
import socket
import sys
import types

import pytest

import reverb


class FakeRay(types.ModuleType):
    """A cluster on which every actor fails to start, and is forgotten."""

    def __init__(self):
        super().__init__("ray")
        self.util = types.SimpleNamespace(list_named_actors=lambda all_namespaces: self.named)
        self.exceptions = types.SimpleNamespace(GetTimeoutError=TimeoutError)
        self.named = []

    def is_initialized(self):
        return True

    def remote(self, **options):
        def start(*arguments):
            self.named.append({"name": options["name"], "namespace": options["namespace"]})

        return lambda kind: types.SimpleNamespace(remote=start)

    def get_actor(self, name, namespace):
        return types.SimpleNamespace(address=types.SimpleNamespace(remote=lambda: name))

    def get(self, requests, timeout):
        self.named.clear()
        raise OSError(f"{requests} could not start")


@pytest.fixture
def module(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    monkeypatch.delitem(sys.modules, "reverb.ray", raising=False)
    yield importlib.import_module("reverb.ray")
    monkeypatch.delitem(sys.modules, "reverb.ray")
    monkeypatch.delattr(reverb, "ray")


def test_an_error_of_the_only_actor_is_raised(module):
    table = reverb.Table("t", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 10, reverb.rate_limiters.MinSize(1))
    with pytest.raises(OSError, match="replay/0.* could not start"):
        module.start("replay", [table])
    assert not module._KEPT, "the handles of actors that are gone are not kept"


def test_an_address_of_ipv6_has_brackets(module):
    assert module._join_address("10.0.0.1", 8000) == "10.0.0.1:8000"
    assert module._join_address("fd00::1", 8000) == "[fd00::1]:8000"


def test_a_port_is_tested_without_ipv6(module, monkeypatch):
    real = socket.socket

    def without_ipv6(family, *arguments):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *arguments)

    with real(socket.AF_INET) as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        monkeypatch.setattr(socket, "socket", without_ipv6)
        port = taken.getsockname()[1]
        assert not module._is_free(port)
    assert module._is_free(port)
