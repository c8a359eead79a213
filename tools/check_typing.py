#!/usr/bin/env python3
"""Checks the types of the Python package as its users see them, with mypy and pyright.

    check_typing.py              both
    check_typing.py mypy         one of them

Checks the programs of python/tests/type_programs in the strict mode of mypy and the standard mode of pyright: each
line with the comment `# error` must be an error, and no other line. Runs the checkers of its own Python environment;
pyright is the one in the package basedpyright, which needs no download at run time.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python"
PROGRAMS = sorted((PACKAGE / "tests" / "type_programs").glob("*.py"))
# The oldest version that the package supports.
VERSION = "3.10"

Errors = dict[tuple[pathlib.Path, int], str]


def marked_lines() -> set[tuple[pathlib.Path, int]]:
    """Returns the lines that must be errors."""
    return {
        (path, number)
        for path in PROGRAMS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith("# error")
    }


def run_mypy() -> Errors:
    """Returns the errors of mypy."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "mypy.ini"
        config.write_text("[mypy]\nexplicit_package_bases = true\n[mypy-reverb.*]\nignore_errors = true\n", encoding="ascii")
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--config-file", config, "--python-version", VERSION, "--no-error-summary",
             "--show-absolute-path", "--hide-error-context", "--cache-dir", ROOT / "build" / "mypy-cache", "--strict", *PROGRAMS],
            capture_output=True, text=True, cwd=folder, env={**os.environ, "MYPYPATH": str(PACKAGE)},
        )  # fmt: skip
    if done.returncode not in (0, 1):
        raise SystemExit(f"mypy ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return {(pathlib.Path(path), int(line)): text for path, line, text in found}


def run_pyright() -> Errors:
    """Returns the errors of pyright."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "pyrightconfig.json"
        settings = {
            "include": [str(path) for path in PROGRAMS],
            "extraPaths": [str(PACKAGE)],
            "typeCheckingMode": "standard",
            "pythonVersion": VERSION,
            "reportMissingImports": False,
            "reportMissingModuleSource": False,
        }
        config.write_text(json.dumps(settings), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "basedpyright", "--outputjson", "--project", config, "--pythonpath", sys.executable],
            capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode not in (0, 1):
        raise SystemExit(f"pyright ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    report = json.loads(done.stdout)
    return {
        (pathlib.Path(each["file"]), each["range"]["start"]["line"] + 1): each["message"].splitlines()[0]
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }


def main() -> int:
    """Runs the checkers, and prints each line where the outcome differs from the marks."""
    checkers = {"mypy": run_mypy, "pyright": run_pyright}
    names = sys.argv[1:] or list(checkers)
    if not set(names) <= set(checkers):
        raise SystemExit(f"usage: check_typing.py [{' | '.join(checkers)}]...")
    expected = marked_lines()
    problems = []
    for name in names:
        errors = checkers[name]()
        problems += [f"{path}:{line}: {name} accepts this line" for path, line in expected - set(errors)]
        problems += [
            f"{path}:{line}: {name}: {text}" for (path, line), text in errors.items() if (path, line) not in expected
        ]
    for problem in sorted(problems):
        print(problem.replace(f"{ROOT}/", ""))
    print(f"{len(PROGRAMS)} programs with {len(expected)} wrong lines, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
