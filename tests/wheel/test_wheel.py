#!/usr/bin/env python3
"""Tests a wheel that is installed in this interpreter's environment, which has nothing else: tools/wheel.sh.

    env/bin/python -I tests/wheel/test_wheel.py WHEEL DOCUMENTS Clean|Readme

DOCUMENTS has README.md and docs/. Clean: NumPy and the wheel are all that is installed. Readme: Gymnasium is as well.
"""

import contextlib
import importlib.metadata
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

wheel = Path()
documents = Path()

# What every Linux of the platform has: of the C and C++ run-time libraries only. The list of manylinux has more, which
# nothing here may need.
OF_THE_PLATFORM = re.compile(r"(ld-linux-[\w-]+|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so\.\d+")
ENVIRONMENT = Path(sys.prefix).resolve()
PROGRAM = ENVIRONMENT / "bin" / "reverb"
DISTRIBUTION = "reverb-rl"


def run(*words, timeout=120):
    """Runs a command; returns its output. Fails the test if it prints an error or a warning."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout, check=False)
    assert (done.returncode, done.stderr) == (0, ""), (words, done.returncode, done.stdout, done.stderr)
    return done.stdout


def run_python(text):
    return run(sys.executable, "-I", "-W", "error", "-c", text)


def run_page(page):
    """Runs the Python blocks of a page as one program."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks, f"{page} has no Python block"
    return run_python("".join(blocks))


def installed_objects():
    """Returns the program and the shared objects that the wheel has installed."""
    found = []
    for file in importlib.metadata.files(DISTRIBUTION):
        path = Path(file.locate()).resolve()
        with path.open("rb") as opened:
            if opened.read(4) == b"\x7fELF":
                found.append(path)
    return found


def libraries_with(modules):
    """Returns the libraries in a process that has imported the modules."""
    program = f"import pathlib, {modules}; print(pathlib.Path('/proc/self/maps').read_text())"
    return {Path(path) for path in re.findall(r"(/\S+\.so[\w.]*)$", run_python(program), re.MULTILINE)}


def dynamic_entries(path, kind):
    return re.findall(rf"\({kind}\).*?\[(.*?)\]", run("readelf", "--dynamic", "--wide", path))


@contextlib.contextmanager
def serving(folder, *words):
    """Serves with the installed program; yields the address."""
    port_file = Path(folder) / "port"
    with subprocess.Popen([PROGRAM, "serve", "--port", "0", "--port-file", port_file, *words],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while not port_file.exists():
                assert server.poll() is None, server.stdout.read()
                assert time.monotonic() < deadline, "the server did not start within 60 s"
                time.sleep(0.02)  # polls for the file
            yield f"localhost:{port_file.read_text().strip()}"
        finally:
            server.send_signal(signal.SIGTERM)
            output, _ = server.communicate(timeout=60)
    assert server.returncode == 0, output


class Clean(unittest.TestCase):
    """In an environment with nothing but NumPy."""

    def test_needs_nothing_but_numpy(self):
        present = {distribution.metadata["Name"].lower() for distribution in importlib.metadata.distributions()}
        self.assertEqual(present - {"pip", "setuptools"}, {DISTRIBUTION, "numpy"})

    def test_is_for_a_manylinux_platform(self):
        self.assertRegex(wheel.name, r"-manylinux_2_(\d+)_\w+\.whl$")
        self.assertLessEqual(int(re.search(r"manylinux_2_(\d+)", wheel.name)[1]), 35)

    def test_needs_no_newer_c_library_than_the_platform_has(self):
        platform = int(re.search(r"manylinux_2_(\d+)", wheel.name)[1])
        for path in installed_objects():
            versions = re.findall(r"\bGLIBC_2\.(\d+)", run("readelf", "--version-info", "--wide", path))
            with self.subTest(path=path.name):
                self.assertLessEqual(max(map(int, versions), default=0), platform)

    def test_has_no_files_of_tests_or_builds(self):
        with zipfile.ZipFile(wheel) as archive:
            folders = {name.split("/")[0] for name in archive.namelist()}
        stem = "-".join(wheel.name.split("-")[:2])
        self.assertLessEqual(folders, {"reverb", "reverb_rl.libs", f"{stem}.data", f"{stem}.dist-info"})

    def test_every_version_is_the_same(self):
        version = importlib.metadata.version(DISTRIBUTION)
        self.assertEqual(run_python("import reverb; print(reverb.__version__)").strip(), version)
        self.assertEqual(run(PROGRAM, "--version").split()[:2], ["reverb", version])

    def test_needs_no_library_from_outside(self):
        objects = installed_objects()
        own = {path.name for path in objects}
        self.assertIn("reverb", own)
        self.assertTrue(any(name.startswith("_core.") for name in own), own)
        for path in objects:
            for name in dynamic_entries(path, "NEEDED"):
                with self.subTest(path=path.name, needs=name):
                    self.assertTrue(name in own or OF_THE_PLATFORM.fullmatch(name), name)

    def test_finds_its_libraries_relative_to_itself(self):
        for path in installed_objects():
            for search in dynamic_entries(path, "R(?:UN)?PATH"):
                with self.subTest(path=path.name, search=search):
                    self.assertTrue(all(part.startswith("$ORIGIN") for part in search.split(":")), search)

    def test_the_program_needs_the_c_library_only(self):
        needed = set(dynamic_entries(PROGRAM, "NEEDED"))
        self.assertLessEqual({re.sub(r"\.so.*", "", name) for name in needed}, {"libc", "libm", "ld-linux-x86-64"})

    def test_a_process_loads_its_own_copies(self):
        libraries = libraries_with("reverb")
        self.assertTrue(any(path.name.startswith("_core.") for path in libraries), libraries)
        # NumPy and the modules of the interpreter need some as well.
        others = run_python(
            "import sys, reverb\n"
            "print(', '.join(name for name in sys.modules"
            " if name.split('.')[0] in sys.stdlib_module_names and '__' not in name))"
        )
        interpreter = Path(sys.base_prefix).resolve()
        outside = {path for path in libraries - libraries_with(f"numpy, {others.strip()}")
                   if not path.is_relative_to(ENVIRONMENT) and not path.is_relative_to(interpreter)}  # fmt: skip
        self.assertEqual({path for path in outside if not OF_THE_PLATFORM.fullmatch(path.name)}, set())

    def test_the_extension_exports_one_name(self):
        (extension,) = (path for path in installed_objects() if path.name.startswith("_core."))
        lines = run("nm", "--dynamic", "--defined-only", extension).splitlines()
        self.assertEqual([line.split()[-1] for line in lines], ["PyInit__core"])

    def test_the_program_exports_nothing_that_a_library_could_take(self):
        names = {line.split()[-1] for line in run("nm", "--dynamic", "--defined-only", PROGRAM).splitlines()}
        self.assertEqual({name for name in names if "grpc" in name.lower() or "absl" in name}, set())

    def test_the_quick_start_runs(self):
        self.assertIsInstance(run_page(documents / "docs" / "quick_start.md"), str)

    def test_the_program_serves_python_clients(self):
        with tempfile.TemporaryDirectory() as folder, serving(folder, "--table", "replay:uniform:fifo:1000") as address:
            printed = run_python(
                "import numpy as np, reverb\n"
                f"client = reverb.Client('{address}')\n"
                "for i in range(10): client.insert(np.float32([i, i]), {'replay': 1.0})\n"
                "(batch,) = client.sample_batches('replay', batch_size=4, num_batches=1)\n"
                "print(batch.data.shape)\n"
            )
            info = json.loads(run(PROGRAM, "info", address, "--json"))
        self.assertEqual(printed.strip(), "(4, 1, 2)")
        self.assertEqual([(table["name"], table["size"]) for table in info["tables"]], [("replay", 10)])

    def test_the_program_exports_with_the_package_beside_it(self):
        with tempfile.TemporaryDirectory() as folder, serving(folder, "--table", "replay:uniform:fifo:1000") as address:
            run_python(f"import reverb; reverb.Client('{address}').insert([1.0], {{'replay': 1.0}})")
            target = Path(folder) / "replay.npz"
            self.assertEqual(run(PROGRAM, "export", address, "--format", "npz", "-o", target).strip(), "1 items")
            self.assertTrue(target.exists())


class Readme(unittest.TestCase):
    """With Gymnasium."""

    def test_the_example_of_the_readme_runs(self):
        self.assertIsInstance(run_page(documents / "README.md"), str)


if __name__ == "__main__":
    os.environ.pop("REVERB_PYTHON", None)
    wheel, documents = Path(sys.argv[1]), Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
