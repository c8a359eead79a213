"""The packaged configuration and the systemd unit."""

import configparser
import json
import os
import pathlib
import shlex
import shutil
import subprocess

from conftest import ROOT, run, short_bench, wait_until
import pytest
import tomllib

CONFIG = ROOT / "packaging/server.toml"
UNIT = ROOT / "packaging/reverb.service"


class Unit(configparser.RawConfigParser):
    """A unit file; the keys of these sections occur once."""

    def __init__(self, path: pathlib.Path):
        super().__init__(delimiters=("=",), comment_prefixes=("#",), strict=True)
        self.optionxform = str
        self.read(path)


def test_packaged_configuration_takes_ordinary_items(program, tmp_path):
    text = CONFIG.read_text()
    tables = tomllib.loads(text)["table"]
    assert not any("signature" in table for table in tables)
    checked = run(program, "serve", "--config", CONFIG, "--check").stdout
    assert "checkpoints in checkpoints: when asked for, every 15 min, at the end" in checked

    # The server saves where it may write, its working directory, and continues with what it saved.
    words = [program, "serve", "--config", CONFIG, "--port", "0", "--port-file", tmp_path / "port"]
    sizes = []
    for _ in range(2):
        server = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
        try:
            wait_until("the port file", lambda server=server: (tmp_path / "port").exists() or server.poll() is not None)
            address = f"localhost:{(tmp_path / 'port').read_text().strip()}"
            run(program, *short_bench(address))
            saved = run(program, "checkpoint", "save", address).stdout.strip()
            assert saved.startswith((str(tmp_path / "checkpoints"), "checkpoints")), saved
            sizes.append(json.loads(run(program, "info", address, "--json").stdout)["tables"][0]["inserts"])
        finally:
            server.terminate()
            assert server.wait(60) == 0
    assert 0 < sizes[0] < sizes[1]


def test_unit_runs_the_program_with_flags_that_it_has(program):
    service = Unit(UNIT)["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[0] == "/usr/local/bin/reverb"
    packaged = [CONFIG if word == "/etc/reverb/server.toml" else word for word in words[1:]]
    assert CONFIG in packaged
    run(program, *packaged, "--check")
    # Relative paths of the configuration resolve to a folder that the service may write to.
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"


def test_unit_does_not_restart_after_a_configuration_error(program, tmp_path):
    service = Unit(UNIT)["Service"]
    bad = tmp_path / "server.toml"
    bad.write_text("[[table]]\nname = 3\n")
    # systemd applies the list to the main process only, so no other process may be the first to find the error.
    assert not any(key.startswith(("ExecStartPre", "ExecCondition")) for key in service)
    words = [bad if word == "/etc/reverb/server.toml" else word for word in shlex.split(service["ExecStart"])[1:]]
    run(program, *words, code=int(service["RestartPreventExitStatus"]))


def test_unit_is_started_when_the_server_is_ready():
    service = Unit(UNIT)["Service"]
    assert service["Type"] == "notify"  # tests/program/suite_notify.py tests the program's part
    assert "AF_UNIX" in service["RestrictAddressFamilies"].split()  # of the manager's socket


def test_unit_reloads_with_a_hangup(program, tmp_path):
    service = Unit(UNIT)["Service"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    # What systemd does: the server reads its level again and goes on.
    config = tmp_path / "server.toml"
    config.write_text('[log]\nlevel = "error"\n[[table]]\nname = "t"\n')
    words = [program, "serve", "--config", config, "--port", "0", "--port-file", tmp_path / "port"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log)
    try:
        wait_until("the port file", (tmp_path / "port").exists)
        config.write_text('[log]\nlevel = "debug"\n[[table]]\nname = "t"\n')
        subprocess.run(["/bin/kill", "-HUP", str(server.pid)], check=True)
        wait_until("the new level", lambda: "reloaded log: level debug" in (tmp_path / "log").read_text())
    finally:
        server.terminate()
        assert server.wait(60) == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(program, tmp_path):
    def verify(text: str) -> subprocess.CompletedProcess:
        unit = tmp_path / "reverb.service"
        unit.write_text(text.replace("/usr/local/bin/reverb ", f"{program} "))
        words = ["systemd-analyze", "verify", "--man=no", unit]
        return subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})

    text = UNIT.read_text()
    ended = verify(text)
    assert (ended.returncode, ended.stderr) == (0, "")
    # It does find mistakes.
    assert "Typ" in verify(text.replace("Type=notify", "Typ=notify")).stderr
