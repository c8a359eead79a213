"""What the checkers of the tree share: a tree made for a self-test, and the command line."""

import argparse
from collections.abc import Callable
import pathlib
import tempfile

# Returns how much was looked at, and "file:line: problem" for each problem.
Check = Callable[[pathlib.Path], tuple[int, list[str]]]


def check_files(check_tree: Check, files: dict[str, str]) -> list[str]:
    """Returns the problems of a tree that has these files, given as path and text."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n", encoding="utf-8")
        return check_tree(root)[1]


def report_self_test(num_cases: int, failures: list[str]) -> int:
    """Prints the outcome of a self-test and returns the exit code."""
    for failure in failures:
        print(f"self-test: {failure}")
    print(f"self-test: {num_cases} cases, {len(failures)} problems")
    return 1 if failures else 0


def main(description: str | None, check_tree: Check, self_test: Callable[[], int], things: str, problem: str) -> int:
    """Checks the repository, or the checker itself, prints the counts of things and problems, returns the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="check the checker")
    if parser.parse_args().self_test:
        return self_test()
    count, problems = check_tree(pathlib.Path(__file__).resolve().parent.parent)
    for line in problems:
        print(line)
    print(f"{count} {things}, {len(problems)} {problem}")
    return 1 if problems else 0
