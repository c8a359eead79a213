"""Tests TLS and tokens from Python: rights, streams that outlive a token, certificates, and their errors."""

import datetime
import os
import pickle
import subprocess
import threading

from conditions import wait_until
from conftest import join, make_table
import numpy as np
import pytest

import reverb
from reverb import security

SECONDS = 60


@pytest.fixture
def tokens(tmp_path):
    return tmp_path / "tokens"


@pytest.fixture
def start():
    servers = []

    def call(**options):
        tables = [make_table("replay"), make_table("other"), reverb.RowTable("rows", consumers=["train"])]
        servers.append(reverb.Server(tables, host="localhost", **options))
        return servers[-1]

    yield call
    for server in servers:
        server.stop()


@pytest.fixture(params=["local", "grpc"])
def connect(request):
    """connect(server, token) makes a client that does not use the calls within this process."""

    def call(server, token=None, **options):
        client = reverb.Client(
            f"localhost:{server.port}", in_process=False, local=request.param == "local", token=token, **options
        )
        return client

    return call


def code_of(call):
    with pytest.raises(RuntimeError) as raised:
        call()
    return raised.value.code, str(raised.value)


# --- Tokens ---


def test_rights_over_each_transport(start, connect, tokens):
    reader = security.add_token(tokens, "reader", rights=["read"])
    actor = security.add_token(tokens, "actor", rights=["write"], tables=["rep*"])
    admin = security.add_token(tokens, "root", rights=["read", "write", "admin"])
    server = start(tokens_file=tokens)
    connect(server, actor).insert([1.0], priorities={"replay": 1.0}, timeout=SECONDS)

    (sample,) = next(connect(server, reader).sample("replay", timeout=SECONDS))
    np.testing.assert_equal(sample.data[0], 1.0)
    assert sorted(connect(server, reader).server_info(timeout=SECONDS)) == ["other", "replay"]
    assert sorted(connect(server, actor).server_info(timeout=SECONDS)) == ["replay"]

    code, text = code_of(lambda: connect(server, reader).insert([1.0], priorities={"replay": 1.0}, timeout=SECONDS))
    assert code == "PERMISSION_DENIED" and 'token "reader"' in text and '"write"' in text
    code, text = code_of(lambda: next(connect(server, actor).sample("replay", timeout=SECONDS)))
    assert code == "PERMISSION_DENIED" and 'token "actor"' in text and '"read"' in text
    code, _ = code_of(lambda: connect(server, reader).reset("replay", timeout=SECONDS))
    assert code == "PERMISSION_DENIED"
    connect(server, admin).reset("replay", timeout=SECONDS)


def test_a_token_for_some_tables_writes_to_these_only(start, connect, tokens):
    token = security.add_token(tokens, "actor", rights=["write"], tables=["replay"])
    server = start(tokens_file=tokens)
    client = connect(server, token)
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        writer.append({"x": 1.0})
        writer.create_item("replay", priority=1.0, trajectory={"x": writer.history["x"][-1:]})
        writer.flush(timeout_ms=SECONDS * 1000)
    rows = client.rows("rows")
    code, text = code_of(lambda: rows.put(["a"], {"x": [np.ones(2)]}, timeout=SECONDS))
    assert code == "PERMISSION_DENIED" and '"rows"' in text


@pytest.mark.parametrize("token", [None, "rvb_wrong"])
def test_clients_without_a_known_token_are_refused(start, connect, tokens, token):
    security.add_token(tokens, "reader", rights=["read"])
    # In another process, since the server trusts its own.
    server = start(tokens_file=tokens, local=False)
    code, text = code_of(lambda: connect(server, token).server_info(timeout=SECONDS))
    assert code == "UNAUTHENTICATED"
    assert "rvb_wrong" not in text


def test_clients_of_the_servers_process_are_trusted(start, tokens):
    security.add_token(tokens, "reader", rights=["read"])
    client = start(tokens_file=tokens).localhost_client()
    client.insert([1.0], priorities={"replay": 1.0}, timeout=SECONDS)
    client.reset("replay", timeout=SECONDS)
    assert client.transports(timeout=SECONDS) == ["in-process"]


def test_streams_end_with_their_token(start, connect, tokens):
    """A sampler that waits and a writer that is idle; the file is read again without being asked to."""
    token = security.add_token(tokens, "both", rights=["read", "write"])
    server = start(tokens_file=tokens)
    client = connect(server, token)
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    writer.append({"x": 1.0})
    writer.create_item("other", priority=1.0, trajectory={"x": writer.history["x"][-1:]})
    writer.flush()
    errors = []

    def sample():
        try:
            next(client.sample("replay", timeout=1000))
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    info = server.localhost_client()
    wait_until(lambda: info.server_info(timeout=SECONDS)["replay"].waiting_samples == 1)
    security.remove_token(tokens, "both")
    join(thread)
    assert errors[0].code == "UNAUTHENTICATED" and 'token "both" was removed' in str(errors[0])

    def write():
        writer.append({"x": 1.0})
        writer.create_item("other", priority=1.0, trajectory={"x": writer.history["x"][-1:]})
        writer.flush(timeout_ms=SECONDS * 1000)

    code, text = code_of(write)
    assert code == "UNAUTHENTICATED" and 'token "both"' in text
    writer.close()


def test_claims_that_wait_end_with_their_token(start, connect, tokens):
    token = security.add_token(tokens, "claimer", rights=["read"])
    server = start(tokens_file=tokens)
    rows = connect(server, token).rows("rows")
    errors = []

    def claim():
        try:
            rows.claim("train", 1, lease=10.0, timeout=1000)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=claim, daemon=True)
    thread.start()
    wait_until(lambda: server.localhost_client().rows("rows").info(timeout=SECONDS)["waiting_claims"] == 1)
    security.remove_token(tokens, "claimer")
    join(thread)
    assert errors[0].code == "UNAUTHENTICATED"


def test_reload_and_damage(start, connect, tokens):
    first = security.add_token(tokens, "first", rights=["read"])
    server = start(tokens_file=tokens)
    second = security.add_token(tokens, "second", rights=["read"])
    server.reload()
    connect(server, second).server_info(timeout=SECONDS)
    tokens.write_text("damaged\n")
    with pytest.raises(ValueError, match="line 1"):
        server.reload()
    connect(server, first).server_info(timeout=SECONDS)


def test_tokens_of_a_file(tokens):
    expires = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    security.add_token(tokens, "a", rights=["read", "admin"], tables=["x*", "y"], expires=expires, max_streams=3)
    (token,) = security.read_tokens(tokens)
    assert token == security.Token("a", ("read", "admin"), ("x*", "y"), expires, 3, None, None)
    with pytest.raises(ValueError, match="'reed'"):
        security.add_token(tokens, "b", rights=["reed"])
    with pytest.raises(TypeError, match="sequences"):
        security.add_token(tokens, "b", rights="read")
    with pytest.raises(ValueError, match="time zone"):
        security.add_token(tokens, "b", rights=["read"], expires=datetime.datetime(2030, 1, 1))
    with pytest.raises(RuntimeError, match='"b"'):
        security.remove_token(tokens, "b")


def test_a_pickled_client_keeps_its_token_and_its_repr_does_not_show_it(start, connect, tokens):
    token = security.add_token(tokens, "reader", rights=["read"])
    client = connect(start(tokens_file=tokens), token)
    copy = pickle.loads(pickle.dumps(client))
    copy.server_info(timeout=SECONDS)
    assert token not in repr(client)


def test_the_environment(start, tokens, monkeypatch, tmp_path):
    token = security.add_token(tokens, "reader", rights=["read"])
    server = start(tokens_file=tokens, local=False)
    (tmp_path / "token").write_text(token + "\n")
    monkeypatch.setenv("REVERB_TOKEN_FILE", str(tmp_path / "token"))
    reverb.Client(f"localhost:{server.port}", in_process=False).server_info(timeout=SECONDS)
    monkeypatch.setenv("REVERB_TOKEN", "rvb_other")
    code, _ = code_of(reverb.Client(f"localhost:{server.port}", in_process=False).server_info)
    assert code == "UNAUTHENTICATED"
    monkeypatch.setenv("REVERB_TLS", "perhaps")
    with pytest.raises(ValueError, match="REVERB_TLS"):
        reverb.Client("localhost:1")


def test_a_token_in_plaintext_to_another_machine():
    with pytest.raises(RuntimeError, match="plaintext"):
        reverb.Client("192.0.2.1:1", token="rvb_x", plaintext_token="refuse").server_info(timeout=SECONDS)
    with pytest.raises(ValueError, match="plaintext_token"):
        reverb.Client("192.0.2.1:1", plaintext_token="maybe")
    with pytest.raises(ValueError, match="token") as raised:
        reverb.Client("localhost:1", token="a secret\n")
    assert "secret" not in str(raised.value)


def test_strict_servers(tokens):
    with pytest.raises(RuntimeError, match="tokens"):
        reverb.Server([make_table()], strict=True)
    reverb.Server([make_table()], host="localhost", strict=True).stop()


# --- TLS ---


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=SECONDS)


def make_authority(folder):
    folder.mkdir(exist_ok=True)
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
            "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip
    return folder


def sign(folder, name, names="DNS:localhost,IP:127.0.0.1", days=30):
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-addext", f"subjectAltName={names}", "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-copy_extensions", "copy", "-days", str(days), "-out", f"{name}.crt")  # fmt: skip


def tls_of(folder, name, **more):
    return reverb.ServerTls(certificate=folder / f"{name}.crt", key=folder / f"{name}.key", **more)


def remote(server, **options):
    return reverb.Client(f"localhost:{server.port}", in_process=False, local=False, **options)


def test_tls(start, tmp_path, tokens):
    here = make_authority(tmp_path / "here")
    sign(here, "server")
    sign(here, "client", "DNS:client")
    token = security.add_token(tokens, "all", rights=["read", "write", "admin"])
    server = start(tls=tls_of(here, "server", client_ca=here / "ca.crt"), tokens_file=tokens)
    tls = reverb.ClientTls(ca=here / "ca.crt", certificate=here / "client.crt", key=here / "client.key")
    client = remote(server, tls=tls, token=token)
    client.insert([1.0], priorities={"replay": 1.0}, timeout=SECONDS)
    next(client.sample("replay", timeout=SECONDS))
    assert pickle.loads(pickle.dumps(client)).server_info(timeout=SECONDS)
    code, text = code_of(remote(server, tls=here / "ca.crt", token=token).server_info)
    assert code == "FAILED_PRECONDITION" and "client certificate" in text
    # The server's own process and the local socket need no certificate.
    server.localhost_client().reset("replay", timeout=SECONDS)


@pytest.mark.parametrize("what", ["info", "insert", "sample", "writer"])
def test_errors_of_tls_come_without_a_timeout(start, tmp_path, what):
    here = make_authority(tmp_path / "here")
    other = make_authority(tmp_path / "other")
    sign(here, "old", days=-1)
    sign(here, "server")

    def write(client):
        with client.trajectory_writer(num_keep_alive_refs=1) as writer:
            writer.append({"x": 1.0})
            writer.create_item("replay", priority=1.0, trajectory={"x": writer.history["x"][-1:]})

    calls = {
        "info": lambda client: client.server_info(),
        "insert": lambda client: client.insert([1.0], priorities={"replay": 1.0}),
        "sample": lambda client: next(client.sample("replay")),
        "writer": write,
    }
    old, good, plain = start(tls=tls_of(here, "old")), start(tls=tls_of(here, "server")), start()
    for server, options, part in (
        (old, {"tls": here / "ca.crt"}, "expired"),
        (good, {"tls": other / "ca.crt"}, "not signed by an authority"),
        (good, {"tls": reverb.ClientTls(ca=here / "ca.crt", server_name="x.example")}, 'not for "x.example"'),
        (good, {}, "speaks TLS, and this client plaintext"),
        (plain, {"tls": here / "ca.crt"}, "the server speaks plaintext"),
    ):
        code, text = code_of(lambda server=server, options=options: calls[what](remote(server, **options)))
        assert code == "FAILED_PRECONDITION" and part in text


def test_new_certificates_are_used_without_a_restart(start, tmp_path):
    here = make_authority(tmp_path / "here")
    other = make_authority(tmp_path / "other")
    sign(here, "server")
    sign(other, "server")
    server = start(tls=tls_of(here, "server"))
    remote(server, tls=here / "ca.crt").server_info(timeout=SECONDS)
    for name in ("server.crt", "server.key"):
        os.replace(other / name, here / name)

    def works():
        try:
            return remote(server, tls=other / "ca.crt").server_info(timeout=SECONDS)
        except RuntimeError:
            return None

    assert wait_until(works)


def test_invalid_tls_arguments(tmp_path):
    with pytest.raises(TypeError, match="ClientTls"):
        reverb.Client("localhost:1", tls=5)
    with pytest.raises(TypeError, match="ServerTls"):
        reverb.Server([make_table()], tls=("a", "b"))
    with pytest.raises(ValueError, match="cannot be read"):
        reverb.Client("localhost:1", tls=tmp_path / "none")
    with pytest.raises(ValueError, match="cannot be read"):
        reverb.Server([make_table()], tls=reverb.ServerTls(tmp_path / "a", tmp_path / "b"))
