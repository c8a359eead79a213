"""The admin port of reverb.Server: answers against openapi.json, metrics against Prometheus's parser, dashboard and alerts."""

import base64
import contextlib
import json
import os
import pathlib
import re
import socket
import urllib.error
import urllib.request

from conditions import wait_until
import jsonschema
import numpy as np
from prometheus_client.parser import text_string_to_metric_families
import pytest
import yaml

import reverb

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 30.0
HOSTILE = '<script>alert("x")</script>\n\\'


class Admin:
    def __init__(self, address: str):
        self.address = address

    def get(self, path: str) -> tuple[int, str, str]:
        """Returns the status, the type of the content and the content."""
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=PATIENCE) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()

    def json(self, path: str):
        status, kind, text = self.get(path)
        assert (status, kind) == (200, "application/json"), text
        return json.loads(text)


@pytest.fixture
def server(tmp_path):
    """A server with tables of all kinds, some items and rows, and a checkpoint."""
    tables = [
        reverb.Table(
            "replay", reverb.selectors.Prioritized(0.8), reverb.selectors.Fifo(), 100, reverb.rate_limiters.MinSize(2)
        ),
        reverb.Table.queue(HOSTILE, 10),
        reverb.RowTable("rollouts", max_rows=100, consumers=["train"]),
    ]
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path / "root"))
    storage = reverb.Storage(tmp_path / "tier", disk_limit=1 << 30)
    with reverb.Server(
        tables, host="localhost", checkpointer=checkpointer, max_bytes=1 << 30, storage=storage, admin="127.0.0.1:0"
    ) as running:
        client = running.localhost_client()
        with client.trajectory_writer(num_keep_alive_refs=3) as writer:
            for step in range(6):
                image = np.full((8, 6, 3), step, np.uint8)
                writer.append({"image": image, "token": np.arange(4) + step, "name": "é"})
                if step >= 2:
                    nest = {key: column[-3:] for key, column in writer.history.items()}
                    writer.create_item("replay", priority=step, trajectory=nest)
            writer.flush()
        next(client.sample("replay"))
        client.rows("rollouts").put(
            ["a", "b"], {"tokens": [np.arange(3), np.arange(5)]}, tags=[{"team": "x"}, {"n": 1}]
        )
        client.checkpoint()
        yield running


@pytest.fixture
def admin(server) -> Admin:
    return Admin(server.admin_address)


# --- Against openapi.json ---


def schema_of(admin: Admin, path: str, status: int, kind: str) -> dict:
    """Returns the schema of an answer, with the definitions that it refers to."""
    described = admin.json("/openapi.json")
    answers = described["paths"][path]["get"]["responses"][str(status)]["content"]
    return answers[kind]["schema"] | {"components": described["components"]}


@pytest.mark.parametrize(
    ("template", "path", "status"),
    [
        ("/api/v1/info", "/api/v1/info", 200),
        ("/api/v1/tables/{name}/items", "/api/v1/tables/replay/items?images=1", 200),
        ("/api/v1/tables/{name}/items", "/api/v1/tables/replay/items?limit=1&values=0", 200),
        ("/api/v1/tables/{name}/items", "/api/v1/tables/rollouts/items", 200),
        ("/api/v1/tables/{name}/items", "/api/v1/tables/none/items", 404),
        ("/api/v1/tables/{name}/items", "/api/v1/tables/replay/items?limit=1000", 400),
        ("/api/v1/stream", "/api/v1/stream?interval=1000", 400),
        ("/openapi.json", "/openapi.json", 200),
    ],
)
def test_answers_are_as_described(admin, template, path, status):
    got, kind, text = admin.get(path)
    assert (got, kind) == (status, "application/json")
    schema = schema_of(admin, template, status, kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def test_events_are_as_described(admin):
    with urllib.request.urlopen(f"http://{admin.address}/api/v1/stream?interval=0.2", timeout=PATIENCE) as answer:
        lines = [answer.readline() for _ in range(3)]
    assert (lines[0], lines[2]) == (b"event: info\n", b"\n")
    schema = schema_of(admin, "/api/v1/info", 200, "application/json")
    jsonschema.Draft202012Validator(schema).validate(json.loads(lines[1].removeprefix(b"data: ")))


def test_every_path_is_described_and_answers(admin):
    for path, described in admin.json("/openapi.json")["paths"].items():
        if path == "/api/v1/stream":
            continue  # does not end
        status, kind, _ = admin.get(path.replace("{name}", "replay"))
        assert str(status) in described["get"]["responses"]
        content = described["get"]["responses"][str(status)]["content"]
        assert any(kind.startswith(known) for known in content), (path, kind)


# --- Items ---


def test_items_have_pictures_names_and_values(admin):
    answer = admin.json("/api/v1/tables/replay/items?images=1&values=3")
    assert (answer["kind"], answer["total"], answer["next"], len(answer["items"])) == ("items", 4, None, 4)
    columns = {column["name"]: column for column in answer["items"][-1]["columns"]}
    assert set(columns) == {"image", "token", "name"}
    image = columns["image"]["image"]
    assert (image["width"], image["height"], image["channels"]) == (6, 8, 3)
    assert set(base64.b64decode(image["data"])) == {5}  # the last frame
    assert columns["token"]["first_values"] == [3, 4, 5]
    assert "image" not in columns["token"]
    assert columns["name"]["first_values"] == ["é", "é", "é"]
    plain = admin.json("/api/v1/tables/replay/items?values=3")
    assert all("image" not in column for item in plain["items"] for column in item["columns"])


def test_rows_are_shown_page_by_page(admin):
    first = admin.json("/api/v1/tables/rollouts/items?limit=1")
    assert (first["kind"], first["total"], first["items"][0]["key"]) == ("rows", 2, "a")
    assert first["items"][0]["tags"] == {"team": "x"}
    second = admin.json(f"/api/v1/tables/rollouts/items?limit=1&after={first['next']}")
    assert (second["items"][0]["key"], second["next"]) == ("b", None)
    assert second["items"][0]["columns"][0]["first_values"] == [0, 1, 2, 3, 4]


# --- Metrics ---


def scrape(admin: Admin) -> dict[str, dict[frozenset, float]]:
    """Returns the samples of each metric by their labels."""
    samples: dict[str, dict[frozenset, float]] = {}
    for family in text_string_to_metric_families(admin.get("/metrics")[2]):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return samples


def test_prometheus_parses_the_metrics(admin):
    samples = scrape(admin)
    replay = frozenset({("table", "replay")})
    assert samples["reverb_table_inserts_total"][replay] == 4
    assert samples["reverb_table_samples_total"][replay] >= 1
    assert samples["reverb_table_items"][frozenset({("table", HOSTILE)})] == 0
    assert samples["reverb_row_table_rows"][frozenset({("table", "rollouts")})] == 2
    consumer = {("table", "rollouts"), ("consumer", "train"), ("state", "ready")}
    assert frozenset(consumer) in samples["reverb_row_table_consumer_rows"]
    assert samples["reverb_checkpoint_writes_total"][frozenset()] == 1
    assert samples["reverb_table_item_priority_count"][replay] == 4
    assert samples["reverb_table_item_priority_sum"][replay] == 2 + 3 + 4 + 5


def test_names_follow_the_conventions_of_prometheus(admin):
    families = list(text_string_to_metric_families(admin.get("/metrics")[2]))
    assert len(families) > 50
    for family in families:
        assert family.name.startswith("reverb_")
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "histogram"), family.name
        # The parser takes the suffix from the names of counters.
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name
        if family.type == "counter":
            assert {sample.name for sample in family.samples} == {f"{family.name}_total"}
        for unit in ("_ms", "_millis", "_nanos", "_kb", "_percent"):
            assert unit not in family.name


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\breverb_[a-z_]+", expression))


def test_alerts_and_dashboard_use_metrics_that_exist(admin):
    existing = set(scrape(admin))
    rules = yaml.safe_load((ROOT / "packaging/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    alerts = set().union(*(names_in(rule["expr"]) for rule in rules))
    dashboard = json.loads((ROOT / "packaging/grafana/reverb.json").read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    targets += [variable["query"]["query"] for variable in dashboard["templating"]["list"][1:]]
    shown = set().union(*map(names_in, targets))
    assert len(alerts) >= 8
    assert len(shown) >= 40
    assert alerts | shown <= existing, (alerts | shown) - existing
    identities = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identities)) == len(identities)
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]


# --- The server ---


def test_there_is_no_port_by_default():
    with reverb.Server([reverb.Table.queue("t", 1)], host="localhost") as server:
        assert server.admin_address is None


def test_hosts_and_errors():
    table = reverb.Table.queue("t", 1)
    for address in ("8001", "127.0.0.1:http", "127.0.0.1:99999"):
        with pytest.raises(ValueError, match=re.escape(f'"{address}"')):
            reverb.Server([table], host="localhost", admin=address)
    with pytest.raises(ValueError, match="no name of a machine"):
        reverb.Server([table], host="localhost", admin="127.0.0.1:0", admin_hosts=["a:80"])
    for hosts in ("replay", [1]):
        with pytest.raises(TypeError, match="admin_hosts"):
            reverb.Server([table], host="localhost", admin="127.0.0.1:0", admin_hosts=hosts)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"{address} is taken"):
            reverb.Server([table], host="localhost", admin=address)
    with reverb.Server([table], host="localhost", admin="127.0.0.1:0", admin_hosts=["replay.example.org"]) as server:
        for host, status in (("replay.example.org", 200), ("other.example.org", 403)):
            request = urllib.request.Request(f"http://{server.admin_address}/healthz", headers={"Host": host})
            with contextlib.suppress(urllib.error.HTTPError):
                assert urllib.request.urlopen(request, timeout=PATIENCE).status == status
                continue
            assert status == 403


def test_strict_servers_refuse_an_exposed_admin_port():
    with pytest.raises(RuntimeError, match=r"0\.0\.0\.0"):
        reverb.Server([reverb.Table.queue("t", 1)], host="localhost", admin="0.0.0.0:0", strict=True)


def test_the_port_closes_with_the_server(admin, server):
    assert admin.get("/healthz")[2] == "ok\n"
    stream = urllib.request.urlopen(f"http://{admin.address}/api/v1/stream?interval=0.2", timeout=PATIENCE)
    assert stream.readline() == b"event: info\n"
    server.stop()
    with stream:
        assert stream.read().count(b"event: ") < 100  # it ends
    host, port = admin.address.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=PATIENCE)


def test_a_child_of_fork_does_not_keep_the_port(server):
    address = server.admin_address
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)  # until the parent is done
        os._exit(0)
    os.close(read_end)
    try:
        assert Admin(address).get("/healthz")[0] == 200
        server.stop()

        def is_refused() -> bool:
            host, port = address.split(":")
            try:
                socket.create_connection((host, int(port)), timeout=PATIENCE).close()
            except ConnectionRefusedError:
                return True
            return False

        wait_until(is_refused)
    finally:
        os.close(write_end)
        os.waitpid(child, 0)
