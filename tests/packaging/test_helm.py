"""The Helm chart: what it renders are objects of Kubernetes that start the program with flags that it has."""

import json
import re
import subprocess

from conftest import PATIENCE, ROOT, run
import kube_schema
import pytest
import yaml

CHART = ROOT / "packaging/helm/reverb"
CONFIG = '[server]\nwhen_full = "evict"\n\n[[table]]\nname = "café"\nsampler = "prioritized=0.6"\nmax_size = 200_000\n'


class Chart:
    def __init__(self, helm: str):
        self.helm = helm

    def render(self, values: dict | None = None, release: str = "run7") -> dict[str, dict]:
        """Returns the rendered objects by kind."""
        ended = self.template(values, release)
        assert ended.returncode == 0, ended.stderr
        rendered = [thing for thing in yaml.safe_load_all(ended.stdout) if thing]
        found = {thing["kind"]: thing for thing in rendered}
        assert len(found) == len(rendered)
        return found

    def template(self, values: dict | None, release: str = "run7") -> subprocess.CompletedProcess:
        words = [
            self.helm,
            "template",
            release,
            CHART,
            "--namespace",
            "lab",
            "--kube-version",
            "1.30.0",
            "--values",
            "-",
        ]
        text = yaml.safe_dump(values or {})
        return subprocess.run(words, input=text, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture(scope="module")
def chart(helm) -> Chart:
    return Chart(helm)


SETTINGS = {
    "defaults": {},
    "all": {
        "replicas": 3,
        "config": CONFIG,
        "port": 9000,
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "admin": {"port": 9001, "scheme": "HTTPS"},
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "x"},
        "checkpoint": {"volume": {"storageClassName": "fast"}},
    },
    "least": {
        "maxBytes": "",
        "checkpoint": {"persistent": False, "every": "", "onStop": False},
        "podDisruptionBudget": {"enabled": False},
        "topologySpreadConstraints": [],
        "admin": {"scrapeAnnotations": False},
    },
}


def pod_of(rendered: dict[str, dict]) -> dict:
    return rendered["StatefulSet"]["spec"]["template"]["spec"]


def container_of(rendered: dict[str, dict]) -> dict:
    (container,) = pod_of(rendered)["containers"]
    return container


def test_lint(helm):
    said = run(helm, "lint", "--strict", CHART, "--kube-version", "1.30.0").stdout
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("name", SETTINGS)
def test_renders_objects_of_kubernetes(chart, name):
    rendered = chart.render(SETTINGS[name])
    wanted = {"Service", "StatefulSet"}
    wanted |= {"PodDisruptionBudget"} if name != "least" else set()
    wanted |= {"ConfigMap", "ServiceMonitor"} if name == "all" else set()
    assert set(rendered) == wanted
    for kind, thing in rendered.items():
        assert re.fullmatch(r"[a-z][-a-z0-9]*[a-z0-9]", thing["metadata"]["name"])
        if kind != "ServiceMonitor":  # of the Prometheus operator
            kube_schema.check(thing)


def test_the_schema_check_finds_mistakes(chart):
    for path, value, problem in (
        (("spec", "replica"), 1, "no field 'replica'"),
        (("spec", "replicas"), "1", "expected int, got '1'"),
        (("spec", "selector"), None, "needs a field 'selector'"),
        (("spec", "template", "spec", "containers"), {}, "expected a list"),
    ):
        thing = chart.render()["StatefulSet"]
        inner = thing
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        with pytest.raises(AssertionError, match=problem):
            kube_schema.check(thing)


@pytest.mark.parametrize("name", SETTINGS)
def test_starts_the_program_with_flags_that_it_has(chart, program, tmp_path, name):
    rendered = chart.render(SETTINGS[name])
    container = container_of(rendered)
    path = ROOT / "packaging/server.toml"  # the image's
    if "ConfigMap" in rendered:
        path = tmp_path / "server.toml"
        path.write_text(rendered["ConfigMap"]["data"]["server.toml"])
        assert path.read_text() == CONFIG
    words = [word.replace("/etc/reverb/server.toml", str(path)) for word in container["args"]]
    assert f"--config={path}" in words
    checked = run(program, *words, "--check").stdout
    assert f"[::]:{container['ports'][0]['containerPort']}" in checked
    assert ("café" if name == "all" else "replay") in checked
    assert "checkpoints in /var/lib/reverb/checkpoints" in checked
    assert ("at most 2 GiB of data; then inserts evict" in checked) == (name != "least")


@pytest.mark.parametrize("name", SETTINGS)
def test_parts_fit_together(chart, name):
    rendered = chart.render(SETTINGS[name])
    service, stateful = rendered["Service"]["spec"], rendered["StatefulSet"]["spec"]
    assert service["clusterIP"] == "None"
    assert stateful["serviceName"] == rendered["Service"]["metadata"]["name"]
    labels = stateful["template"]["metadata"]["labels"].items()
    selectors = [service["selector"], stateful["selector"]["matchLabels"]]
    selectors += [
        each["labelSelector"]["matchLabels"] for each in pod_of(rendered).get("topologySpreadConstraints", [])
    ]
    if "PodDisruptionBudget" in rendered:
        selectors.append(rendered["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
    for selector in selectors:
        assert selector
        assert selector.items() <= labels
    container = container_of(rendered)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["ports"]} == set(ports)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] in ports
        assert asked["path"] == ("/healthz" if probe == "livenessProbe" else "/readyz")
        assert asked["scheme"] == ("HTTPS" if name == "all" else "HTTP")
    assert f"--admin-listen=[::]:{ports['admin']}" in container["args"]
    annotations = stateful["template"]["metadata"]["annotations"]
    assert (annotations.get("prometheus.io/port") == str(ports["admin"])) == (name != "least")
    volumes = {volume["name"] for volume in pod_of(rendered).get("volumes", [])}
    volumes |= {claim["metadata"]["name"] for claim in stateful.get("volumeClaimTemplates", [])}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert ("volumeClaimTemplates" in stateful) == (name != "least")
    if "ServiceMonitor" in rendered:
        monitor = rendered["ServiceMonitor"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= rendered["Service"]["metadata"]["labels"].items()
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= {
            port["name"] for port in service["ports"]
        }
        assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_agrees_with_the_image(chart):
    """The user of the pod is that of the image, and the volume is mounted where the image has its folder."""
    text = (ROOT / "packaging/Dockerfile").read_text()
    user = re.search(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    security = pod_of(chart.render())["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"]) == (int(user[1]), int(user[2]))
    assert security["fsGroup"] == int(user[2])
    mounts = [mount["mountPath"] for mount in container_of(chart.render())["volumeMounts"]]
    assert re.search(r"^VOLUME (.*)$", text, re.MULTILINE)[1] in mounts
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = re.search(r"project\(reverb VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert described["appVersion"] == project[1]


def test_a_changed_configuration_replaces_the_pods(chart):
    def annotations(config: str) -> dict:
        return chart.render({"config": config})["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]

    assert annotations(CONFIG) == annotations(CONFIG)
    assert annotations(CONFIG) != annotations(CONFIG + "max_age = '1h'\n")


def test_long_names_are_cut(chart):
    rendered = chart.render(release="r" * 53)
    name = rendered["StatefulSet"]["metadata"]["name"]
    assert len(f"{name}-999") <= 63
    for kind, thing in rendered.items():
        assert thing["metadata"]["name"] == name, kind


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"replica": 2}, "replica"),
        ({"port": "x"}, "port"),
        ({"port": 0}, "port"),
        ({"admin": {"scheme": "http"}}, "scheme"),
        ({"checkpoint": {"evry": "1h"}}, "evry"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    ],
)
def test_wrong_values_are_refused(chart, values, problem):
    ended = chart.template(values)
    assert ended.returncode != 0
    assert problem in ended.stderr


def test_every_value_is_described():
    """Every key at the top of values.yaml is in the schema and the reverse, and a comment precedes it or its group."""
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(yaml.safe_load(text)) == set(schema["properties"]) - {"global"}
    groups = [group for group in text.split("\n\n") if re.search(r"^\w+:", group, re.MULTILINE)]
    for group in groups:
        assert "#" in group or group.startswith("port:"), group
