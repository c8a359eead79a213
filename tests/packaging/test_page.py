"""Runs the commands of docs/deployment.md: the program, Helm and the Slurm job for real, daemons as stand-ins."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from conftest import PATIENCE, ROOT, run
import pytest

STAND_INS = pathlib.Path(__file__).parent / "stand_ins"
PAGE = (ROOT / "docs/deployment.md").read_text()


def section(heading: str, page: str = PAGE) -> str:
    """The commands of a section."""
    (text,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks, heading
    return "".join(blocks)


@pytest.fixture
def shell(program, tmp_path):
    """Runs commands in the root of the tree. Those in `recorded` are only recorded, in the returned list."""

    def call(commands: str, *recorded: str, **more: str) -> list[list[str]]:
        bin_folder = tmp_path / "bin"
        bin_folder.mkdir()
        (bin_folder / "reverb").symlink_to(program)
        record = tmp_path / "recorded"
        record.touch()
        for name in recorded:
            script = f"#!{sys.executable}\nimport json, sys\n"
            script += f"open({str(record)!r}, 'a').write(json.dumps([{name!r}, *sys.argv[1:]]) + '\\n')\n"
            (bin_folder / name).write_text(script)
            (bin_folder / name).chmod(0o755)
        path = f"{bin_folder}:{more.pop('path', '')}:{os.environ['PATH']}"
        run("bash", "-euc", commands, env=os.environ | {"PATH": path} | more, timeout=3 * PATIENCE)
        return [json.loads(line) for line in record.read_text().splitlines()]

    return call


def test_every_section_with_commands_is_tested():
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    # tests/faults/test_balancers.py and python/tests_frameworks/test_ray_servers.py run the last two.
    assert headings == ["The packaged configuration", "systemd", "Container", "Kubernetes", "Slurm", "Load balancers", "Ray"]


def test_packaged_configuration(shell):
    assert shell(section("The packaged configuration")) == []


def test_systemd(shell, program, tmp_path):
    commands = section("systemd")
    assert "build/release/apps/reverb" in commands
    commands = commands.replace("build/release/apps/reverb", str(program))
    root = tmp_path / "root"
    done = shell(commands, "systemctl", DESTDIR=str(root))
    assert [words[1] for words in done] == ["daemon-reload", "enable", "status"]
    # What the unit runs is there now.
    unit = (root / "etc/systemd/system/reverb.service").read_text()
    words = shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE).group(1))
    words = [f"{root}{word}" if word.startswith("/") else word for word in words]
    run(*words, "--check")


def test_container(shell, program):
    done = shell(section("Container"), "docker")
    assert [words[1] for words in done] == ["build", "run", "run", "run", "exec"]
    assert (ROOT / done[0][done[0].index("-f") + 1]).exists()
    image = done[0][done[0].index("-t") + 1]
    (defaults,) = re.findall(r"^CMD (.*)$", (ROOT / "packaging/Dockerfile").read_text(), re.MULTILINE)
    for words in done[1:4]:
        # Options, the image, and arguments of the program; the published port is the one that it listens on.
        arguments = words[words.index(image) + 1 :] or json.loads(defaults)
        published = words[words.index("-p") + 1].split(":")[1]
        local = [str(ROOT / "packaging/server.toml") if word.startswith("/etc/") else word for word in arguments]
        assert f"[::]:{published} and serve" in run(program, *local, "--check").stdout
        for volume in (words[i + 1] for i, word in enumerate(words) if word == "-v"):
            target = volume.split(":")[1]
            assert target in ("/var/lib/reverb", "/etc/reverb/server.toml")
            assert target in (ROOT / "packaging/Dockerfile").read_text()
    assert done[4][2] == done[1][done[1].index("--name") + 1]
    run(program, *done[4][4:-1], "--help")


def test_kubernetes(shell, helm, tmp_path):
    done = shell(section("Kubernetes"), "helm", "kubectl")
    rendered = ""
    for words in done:
        if words[0] == "helm":
            # Without a cluster: installs and upgrades are rendered.
            assert words[1] in ("install", "upgrade")
            options = [word for word in words[2:] if word != "--reuse-values"]
            rendered = run(helm, "template", *options, "--kube-version", "1.30.0").stdout
        elif words[1] == "rollout":
            kind, name = words[3].split("/")
            assert re.search(rf"^kind: StatefulSet\nmetadata:\n  name: {name}$", rendered, re.MULTILINE)
            assert kind == "statefulset"
        else:
            assert words[1] == "exec"
            assert re.search(rf"^  name: {words[2].removesuffix('-0')}$", rendered, re.MULTILINE)
    assert "kind: ConfigMap" in rendered


def test_slurm(shell, tmp_path):
    imported = subprocess.run([sys.executable, "-c", "import reverb"], capture_output=True, check=False)
    if imported.returncode != 0:
        pytest.skip("the Python package is not built; make test-packaging builds it")
    commands = section("Slurm").replace("$PWD/build/", f"{tmp_path}/").replace("=build/", f"={tmp_path}/")
    commands = commands.replace("python3 ", f"{sys.executable} ")
    steps = tmp_path / "steps"
    steps.mkdir()
    shell(commands, STAND_IN_STEPS=str(steps), path=str(STAND_INS))
    log = (tmp_path / "run42.log").read_text()
    assert "2 server(s) at" in log
    assert "took 100 batches" in log
    assert "the learner ended with exit code 0" in log
