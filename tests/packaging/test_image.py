"""The container image: the Dockerfile, and, where buildah and a base image are installed, the image."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

from conftest import PATIENCE, ROOT, run, short_bench, wait_until
import pytest

DOCKERFILE = ROOT / "packaging/Dockerfile"
BASE = "debian:12-slim"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line]


def final_stage() -> list[tuple[str, str]]:
    found = instructions()
    last = max(i for i, (name, _) in enumerate(found) if name == "FROM")
    return found[last:]


def value(name: str) -> str:
    found = [rest for word, rest in final_stage() if word == name]
    assert len(found) == 1, f"{name}: {found}"
    return found[0]


def health_command() -> str:
    return value("HEALTHCHECK").split(" CMD ", 1)[1].strip()


def test_files_of_the_build_exist():
    """Every file that a COPY takes from the tree is in the tree, and not excluded from the context."""
    taken = []
    for name, rest in instructions():
        if name != "COPY":
            continue
        words = rest.split()
        if words[0].startswith("--from="):
            taken += [word.removeprefix("/src/") for word in words[1:-1] if not word.startswith("/src/build/")]
        else:
            taken += words[:-1]
    ignored = (ROOT / "packaging/Dockerfile.dockerignore").read_text().split()
    assert taken
    for path in taken:
        assert (ROOT / path).exists(), path
        assert pathlib.PurePath(path).parts[:1] not in [(name,) for name in ignored], path
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    built = re.search(r"cmake --preset (\w+)", DOCKERFILE.read_text()).group(1)
    assert built in [preset["name"] for preset in presets]
    assert f"/src/build/{built}/apps/reverb" in DOCKERFILE.read_text()


def test_command_is_one_of_the_program(program):
    assert json.loads(value("ENTRYPOINT")) == ["reverb"]
    words = json.loads(value("CMD"))
    assert "/etc/reverb/server.toml" in words
    words = [ROOT / "packaging/server.toml" if word == "/etc/reverb/server.toml" else word for word in words]
    port, admin = value("EXPOSE").split()
    checked = run(program, *words, "--check").stdout
    assert f":{port} and serve" in checked
    assert f"admin page and metrics at [::]:{admin}\n" in checked


def test_volume_is_the_working_directory_and_belongs_to_the_user():
    assert value("VOLUME") == value("WORKDIR")
    user, group = value("USER").split(":")
    assert int(user) > 0, "Kubernetes verifies runAsNonRoot for numbers only"
    folders = re.search(rf"install -d -o {user} -g {group} (.*)", value("RUN")).group(1).split()
    variable, port_file = value("ENV").split("=")
    assert variable == "REVERB_PORT_FILE"
    assert set(folders) == {value("VOLUME"), str(pathlib.PurePath(port_file).parent)}
    # The folder exists before VOLUME, and so do its owner and mode in a new volume.
    names = [name for name, _ in final_stage()]
    assert names.index("RUN") < names.index("VOLUME")


@pytest.fixture
def health(program, tmp_path):
    """Runs the health check: health(**environment) returns its exit code, health.serve(...) starts a server for it."""
    environment = os.environ | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "REVERB_PORT_FILE": str(tmp_path / "port"),
    }
    started = []

    def check(**more: str) -> int:
        words = ["sh", "-c", health_command()]
        settings = {"env": environment | more, "capture_output": True, "timeout": PATIENCE, "check": False}
        return subprocess.run(words, **settings).returncode

    def serve(*words) -> subprocess.Popen:
        words = [program, "serve", *words, "--port", "0", "--host", "[::]"]
        started.append(subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return started[-1]

    check.serve = serve
    yield check
    for server in started:
        server.terminate()
        server.wait(PATIENCE)


def test_health_check_follows_the_port(health):
    assert health() != 0, "there is no server yet"
    server = health.serve("--table", "t")
    wait_until("a healthy server", lambda: health() == 0)
    server.terminate()
    server.wait(PATIENCE)
    assert health() != 0
    assert "--start-period=" in value("HEALTHCHECK")


def test_health_check_of_a_server_with_tokens_and_tls(health, program, tmp_path):
    """As docs/deployment.md says: TLS makes no difference, and tokens need trust_same_user or a token."""
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
    run(*new, "-subj", "/CN=reverb", "-keyout", tmp_path / "key", "-out", tmp_path / "crt")
    token = run(program, "token", "new", "probe", "--rights", "read", "--file", tmp_path / "tokens").stdout.strip()
    config = tmp_path / "server.toml"
    for trusts in (False, True):
        config.write_text(f"""
            [tls]
            certificate = "{tmp_path}/crt"
            key = "{tmp_path}/key"
            [auth]
            tokens_file = "{tmp_path}/tokens"
            trust_same_user = {str(trusts).lower()}
            [[table]]
            name = "t"
        """)
        server = health.serve("--config", config)
        wait_until("a healthy server", lambda: health(REVERB_TOKEN=token) == 0)
        assert (health() == 0) == trusts
        server.terminate()
        server.wait(PATIENCE)


def has_base() -> bool:
    if shutil.which("buildah") is None:
        return False
    listed = subprocess.run(["buildah", "images", "-q", BASE], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and bool(listed.stdout.strip())


def descendants(pid: int) -> list[int]:
    found = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *descendants(child)]
    return found


def command_of(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.fixture
def container(program, tmp_path):
    """A container of the image's last stage, with the program of this tree in place of that of the first."""
    if not has_base():
        pytest.skip(f"needs buildah and a local image {BASE}")
    context = tmp_path / "context"
    context.mkdir()
    run("strip", "-o", context / "reverb", program)
    shutil.copy(ROOT / "packaging/server.toml", context)
    lines = ["FROM scratch AS build", "COPY reverb /src/build/release/apps/reverb"]
    lines += ["COPY server.toml /src/packaging/server.toml", *(" ".join(words) for words in final_stage())]
    (context / "Dockerfile").write_text("\n".join(lines) + "\n")
    image = f"reverb-test-{os.getpid()}"
    build = ("buildah", "build", "--pull-never", "--isolation=chroot", "--format=docker")
    run(*build, "-t", image, context, timeout=600)
    name = run("buildah", "from", "--pull-never", image, timeout=300).stdout.strip()
    yield name
    run("buildah", "rm", name)
    run("buildah", "rmi", image)


def test_image_serves_saves_and_is_healthy(container, tmp_path):
    settings = json.loads(run("buildah", "inspect", container).stdout)["Docker"]["config"]
    assert settings["WorkingDir"] == "/var/lib/reverb"
    assert settings["Volumes"] == {"/var/lib/reverb": {}}
    assert settings["User"] == "10001:10001"
    assert settings["Healthcheck"]["Test"][0] == "CMD-SHELL"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    inside = ("buildah", "run", "--isolation=chroot", container, "--")
    words = [*inside, *settings["Entrypoint"], *settings["Cmd"], "--port", port]  # the network is the machine's
    health = [*inside, "sh", "-c", settings["Healthcheck"]["Test"][1]]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_until(
            "a healthy server",
            lambda: (
                server.poll() is not None or subprocess.run(health, capture_output=True, check=False).returncode == 0
            ),
        )
        assert server.poll() is None, (tmp_path / "log").read_text()
        run(*inside, "reverb", *short_bench(f"localhost:{port}"))
        saved = run(*inside, "reverb", "checkpoint", "save", f"localhost:{port}").stdout.strip()
        verified = run(*inside, "reverb", "checkpoint", "verify", saved).stdout
        assert "is good" in verified
        inner = [pid for pid in descendants(server.pid) if command_of(pid) == "reverb"]
        assert len(inner) == 1
        os.kill(inner[0], signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
        assert "Saved as checkpoints/" in (tmp_path / "log").read_text()
    finally:
        for pid in [*descendants(server.pid), server.pid] if server.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        server.wait(PATIENCE)
