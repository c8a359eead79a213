"""Runs the commands of docs/operations.md against a real server; systemd and promtool are stand-ins where missing."""

import json
import re
import shutil
import subprocess

from conftest import PATIENCE, ROOT, run, short_bench, wait_until
import pytest
import test_page
import yaml

PAGE = (ROOT / "docs/operations.md").read_text()
ALERTS = ROOT / "packaging/prometheus/alerts.yml"
shell = test_page.shell

# Sections that other tests run, or that have no commands.
RUN_ELSEWHERE = {"The page", "Security model"}
TESTED = [
    "Install as a service",
    "Ports",
    "The admin port",
    "Sizing",
    "Logs",
    "Alerts",
    "Upgrade and rollback",
    "Disaster recovery",
]


def section(heading: str) -> str:
    return test_page.section(heading, PAGE)


def test_every_section_with_commands_is_tested():
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert [heading for heading in headings if heading not in RUN_ELSEWHERE] == TESTED
    assert "```sh" not in re.search(r"^## Ports\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL).group(1)


@pytest.fixture
def server(program, tmp_path):
    """A server with some items and a checkpoint folder; yields its process, address and folder."""
    root = tmp_path / "checkpoints"
    port = tmp_path / "port"
    words = [program, "serve", "--config", ROOT / "packaging/server.toml", "--checkpoint", root, "--port", "0"]
    words += ["--admin-listen", "127.0.0.1:0", "--admin-port-file", tmp_path / "admin"]
    process = subprocess.Popen([*words, "--port-file", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until("the port file", lambda: port.exists() or process.poll() is not None)
        address = f"localhost:{port.read_text().strip()}"
        run(program, *short_bench(address))
        run(program, "checkpoint", "save", address)
        yield process, address, root
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_install_as_a_service(shell, program, tmp_path):
    commands = section("Install as a service").replace("build/release/apps/reverb", str(program))
    root = tmp_path / "root"
    done = shell(commands, "systemctl", DESTDIR=str(root))
    assert [words[1] for words in done] == ["daemon-reload", "enable", "reload", "restart"]
    unit = (root / "etc/systemd/system/reverb.service").read_text()
    assert "ExecReload=" in unit


def test_the_admin_port(shell, server):
    """The commands work; the answers themselves are tested elsewhere."""
    _, _, root = server
    port = (root.parent / "admin").read_text().strip()
    commands = section("The admin port")
    assert commands.count("curl") >= 6
    shell(commands.replace("localhost:8001", f"localhost:{port}"))
    (config,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (job,) = yaml.safe_load(config)["scrape_configs"]
    assert job["job_name"] in ALERTS.read_text()


def test_sizing(shell, server):
    shell(section("Sizing").replace("localhost:8000", server[1]))


def test_logs(program, tmp_path):
    # `systemctl show` names the process; `systemctl reload` does what ExecReload says.
    (config,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "server.toml"
    path.write_text(config + '[[table]]\nname = "t"\n')
    log = tmp_path / "log"
    words = [program, "serve", "--config", path, "--port", "0", "--port-file", tmp_path / "port"]
    with log.open("w") as file:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=file)
    try:
        wait_until("the port file", (tmp_path / "port").exists)
        stand_in = tmp_path / "bin/systemctl"
        stand_in.parent.mkdir()
        stand_in.write_text(f'#!/bin/sh\n[ "$1" = show ] && echo {process.pid} || kill -HUP {process.pid}\n')
        stand_in.chmod(0o755)
        for count, command in enumerate(section("Logs").splitlines(), start=1):
            run("bash", "-euc", f"PATH={stand_in.parent}:$PATH; {command}")

            def reloads() -> int:
                records = [json.loads(line) for line in log.read_text().splitlines()]
                return sum(record.get("event") == "reload" for record in records)

            wait_until(f"reload {count}", lambda count=count: reloads() >= count)
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_alerts(shell):
    if shutil.which("promtool"):
        assert shell(section("Alerts")) == []
    else:
        (words,) = shell(section("Alerts"), "promtool")
        assert (ROOT / words[-1]) == ALERTS
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    table = re.findall(r"^\| [\w ]+ \| `([^`]+)`(?: for (\d+) min)? \|", PAGE, re.MULTILINE)
    assert [(rule["expr"], rule.get("for", "")) for rule in rules] == [
        (expression, f"{minutes}m" if minutes else "") for expression, minutes in table
    ]
    assert all(rule["annotations"]["summary"] for rule in rules)


def test_upgrade_and_rollback(shell, server, program, tmp_path):
    process, address, root = server
    backup = tmp_path / "backup"
    backup.mkdir()
    shutil.copy(program, backup / "reverb")
    commands = section("Upgrade and rollback").replace("localhost:8000", address)
    commands = commands.replace("build/release/apps/reverb", str(program))
    commands = commands.replace("/usr/local/bin", str(tmp_path / "usr"))
    commands = commands.replace("/var/lib/reverb/checkpoints", str(root)).replace("/backup", str(backup))
    (tmp_path / "usr").mkdir()
    done = shell(commands, "systemctl")
    assert [words[1] for words in done] == ["restart", "stop", "start"]
    # What the former program starts from is what was saved before the upgrade.
    assert "is good" in run(program, "checkpoint", "verify", root).stdout
    assert (tmp_path / "usr/reverb").stat().st_size == program.stat().st_size
    assert (tmp_path / "checkpoints.newer").exists()


def test_disaster_recovery(shell, server, tmp_path):
    _, _, root = server
    commands = section("Disaster recovery").replace("/var/lib/reverb/checkpoints", str(root))
    shell(commands.replace("/backup", str(tmp_path / "backup")))
    assert (tmp_path / "backup/monday").is_dir()
