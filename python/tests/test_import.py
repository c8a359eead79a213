"""Tests what `import reverb` loads, and how quickly."""

import json
import os
from pathlib import Path
import platform
import shutil
import subprocess
import sys

import pytest

import reverb

REPORT = """
import json, resource, sys, time
import numpy
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
import reverb
seconds = time.perf_counter() - start
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "kilobytes": after - before, "modules": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def report():
    reports = [
        json.loads(subprocess.run([sys.executable, "-c", REPORT], check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    return min(reports, key=lambda each: each["seconds"])


@pytest.mark.parametrize(
    ("built", "there"),
    [
        (["_core.cpython-39-x86_64-linux-gnu.so", "_core.cpython-310-darwin.so"], "CPython 3.9, CPython 3.10"),
        ([], "no interpreter"),
    ],
)
def test_says_for_which_interpreters_it_was_built(tmp_path, built, there):
    package = tmp_path / "reverb"
    shutil.copytree(Path(reverb.__file__).parent, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in built:
        (package / name).touch()
    result = subprocess.run(
        [sys.executable, "-c", "import reverb"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=60,
    )
    assert result.returncode == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("ImportError: ")]
    assert f"reverb was not built for this interpreter, {platform.python_implementation()} {platform.python_version()}" in line
    assert f"is there for {there}." in line
    assert f"tools/python.sh develop {sys.version_info.major}.{sys.version_info.minor}" in line
    assert "circular" not in result.stderr


@pytest.mark.parametrize("heavy", ["tensorflow", "torch", "jax", "ray", "grpc", "google.protobuf", "ml_dtypes", "tree"])
def test_brings_in_no_framework(report, heavy):
    assert heavy not in report["modules"]


def test_brings_in_no_bridge(report):
    assert [module for module in report["modules"] if module.startswith("reverb.integrations")] == []


@pytest.mark.parametrize("package", ["torch", "tensordict"])
def test_a_bridge_names_the_package_that_it_needs(package):
    code = f"""
import sys, types
sys.modules.setdefault("torch", types.ModuleType("torch"))
sys.modules[{package!r}] = None
import reverb.integrations.queue, reverb.integrations.kv
import reverb.integrations.nemo_rl
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: reverb.integrations.nemo_rl needs {package}, which is not installed: pip install torch tensordict"
    )


@pytest.mark.parametrize(("module", "package", "name"), [("torch", "torch", "PyTorch"), ("jax", "jax", "JAX"), ("ray", "ray", "Ray")])
@pytest.mark.parametrize("statement", ["import reverb.{0}", "import reverb; reverb.{0}"])
def test_a_framework_that_is_not_installed_is_named(module, package, name, statement):
    code = f"import sys; sys.modules[{package!r}] = None\n{statement.format(module)}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: reverb.{module} needs {name}, which is not installed: pip install {package}"
    )


def test_is_small(report):
    assert report["kilobytes"] < 40 * 1024


def test_the_names_of_the_package():
    for name in reverb.__all__:
        getattr(reverb, name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        reverb.nonsense


@pytest.mark.parametrize(
    "path",
    [
        "client",
        "errors.DeadlineExceededError",
        "item_selectors.Fifo",
        "pattern_dataset",
        "platform.checkpointers_lib.DefaultCheckpointer",
        "platform.default.checkpointers.default_checkpointer",
        "pybind.Client",
        "pybind.Sampler.NUM_INFO_TENSORS",
        "rate_limiters.MinSize",
        "replay_sample.ReplaySample",
        "reverb_types.TableInfo",
        "server.Table",
        "server.TableExtensionBase",
        "structured.create_config",
        "structured_writer.Condition",
        "tf_client",
        "timestep_dataset",
        "trajectory_dataset",
        "trajectory_writer.TrajectoryColumn",
    ],
)
def test_what_programs_reach_through_the_package(path):
    value = reverb
    for part in path.split("."):
        value = getattr(value, part, None)
        assert value is not None, f"{part} of reverb.{path}"


def test_other_threads_may_import_it_first():
    code = (
        "import threading; t = threading.Thread(target=__import__, args=['reverb']); t.start(); t.join(); "
        "import reverb; print(reverb.Server.__name__)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=30) == "Server\n"
