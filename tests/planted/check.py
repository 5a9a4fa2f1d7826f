#!/usr/bin/env python3
"""Whether every planted bug still fits the tree: its two header lines, its place, and the names of its tests.

Usage: check.py SOURCE_ROOT [BUILD_ROOT]; without the latter the names are not looked at.
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True
import patches

PLANTED_MIN = 28


def names_of_tests(build_root):
    listed = json.loads((pathlib.Path(build_root) / "meson-info" / "intro-tests.json").read_text())
    return {test["name"] for test in listed}


def complaints(root, tests):
    paths = patches.all_paths()
    if len(paths) < PLANTED_MIN:
        yield f"there are {len(paths)} planted bugs; at least {PLANTED_MIN} are wanted"
    for path in paths:
        try:
            patch = patches.Patch(path)
            patch.changed(root)
            for test in patch.tests:
                if tests and test.split(":")[0] not in tests:
                    yield f"{path.name}: there is no test {test}"
        except patches.PatchError as why:
            yield f"{path.name}: {why}"


if __name__ == "__main__":
    found = list(complaints(sys.argv[1], names_of_tests(sys.argv[2]) if len(sys.argv) > 2 else None))
    print("\n".join(found) or f"all {len(patches.all_paths())} planted bugs fit")
    sys.exit(1 if found else 0)
