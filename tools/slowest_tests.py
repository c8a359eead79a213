#!/usr/bin/env python3
"""Reads the JUnit XML files that test runs left and lists the slowest tests, or those that failed.

    slowest_tests.py [--count N] RESULTS     the N slowest, over all runs
    slowest_tests.py --failed RESULTS        every test that failed, by run

RESULTS is a folder of <run>.xml files, as ctest --output-junit and pytest --junit-xml write them. A program that left its
cases in RESULTS/<run>/<program>.xml, as GoogleTest does, is listed by case.
"""

import argparse
import pathlib
import sys
import xml.etree.ElementTree as ElementTree
from typing import NamedTuple


class Test(NamedTuple):
    run: str
    name: str
    seconds: float
    failed: bool


def read_file(path: pathlib.Path, run: str) -> list[Test]:
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        print(f"{path}: not readable: {error}", file=sys.stderr)
        return []
    tests = []
    for case in root.iter("testcase"):
        name = case.get("name", "?")
        scope = case.get("classname", "")
        # ctest repeats the name as the class name; pytest gives the module there, GoogleTest the suite.
        if scope and scope != name:
            name = f"{scope}.{name}"
        failed = case.find("failure") is not None or case.find("error") is not None
        tests.append(Test(run, name, float(case.get("time") or 0), failed or case.get("status") == "fail"))
    return tests


def read_tests(folder: pathlib.Path) -> list[Test]:
    tests = []
    for path in sorted(folder.glob("*.xml")):
        for test in read_file(path, path.stem):
            cases = folder / path.stem / f"{test.name}.xml"
            of_program = read_file(cases, path.stem) if cases.exists() else []
            if of_program and any(case.failed for case in of_program) == test.failed:
                tests += of_program
            else:  # not a GoogleTest program, or one that crashed or failed outside its cases
                tests.append(test)
    return tests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--failed", action="store_true")
    arguments = parser.parse_args()

    tests = read_tests(arguments.results)
    if arguments.failed:
        for test in tests:
            if test.failed:
                print(f"failed: {test.run}: {test.name}")
        return 0
    if not tests:
        print("no test results")
        return 0
    for test in sorted(tests, key=lambda test: -test.seconds)[: arguments.count]:
        print(f"{test.seconds:9.2f} s  {test.run:<6} {test.name}")
    print(f"{len(tests)} tests in {len({test.run for test in tests})} runs, {sum(test.seconds for test in tests):.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
