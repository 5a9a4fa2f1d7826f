#!/usr/bin/env python3
"""Every test that the table of faults in tests/README.md names is there, and is run.

usage: check_fault_table.py PROJECT
"""

import pathlib
import re
import sys

HEADING = "## Which test covers which fault"


def rows(text):
    """The rows of the table below the heading: a list of cells each."""
    table = text.split(HEADING, 1)[1] if HEADING in text else ""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def check(project):
    """How many tests are named, and what is wrong."""
    readme = project / "tests" / "README.md"
    sources = "\n".join(file.read_text() for file in sorted((project / "tests").rglob("*.cpp")))
    found = rows(readme.read_text())
    if not found:
        return 0, [f"{readme}: there is no table below '{HEADING}'"]
    named = 0
    faults = []
    for row in found:
        tests = re.findall(r"`(\w+)`", row[-1])
        if len(row) != 3 or not tests:
            faults.append(f"{readme}: the row '{row[0]}' names no test")
        for test in tests:
            named += 1
            if not re.search(rf"^void {test}\(void\*\*", sources, re.MULTILINE):
                faults.append(f"{readme}: there is no test {test}")
            elif not re.search(rf"\(\s*{test}\b", sources):
                faults.append(f"{readme}: the test {test} is never run")
    return named, faults


def main(project):
    named, faults = check(pathlib.Path(project))
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{named} tests are named, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
