"""Planted bugs as patch files: reading them, and applying them to a tree.

A patch file is a unified diff, fit for `git apply` and `patch -p1`, behind two lines:

    breaks: what goes wrong with it
    tests: the Meson tests that must notice, the likeliest first; `name:pattern` runs only the cases that match

A hunk is found by its text, which must be in its file exactly once. So line numbers may go stale, and context is
needed only as far as it makes the place unmistakable.
"""

import pathlib
import re


class PatchError(Exception):
    pass


class Patch:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.name = self.path.stem
        lines = self.path.read_text().splitlines()
        self.breaks = self._header(lines, 0, "breaks")
        self.tests = self._header(lines, 1, "tests").split()
        self.hunks = list(self._hunks(lines[2:]))
        if not self.hunks:
            raise PatchError("it has no hunk")

    def _header(self, lines, index, name):
        line = lines[index] if index < len(lines) else ""
        if not line.startswith(name + ": ") or not line[len(name) + 2 :].strip():
            raise PatchError(f"line {index + 1} is not `{name}: ...`")
        return line[len(name) + 2 :].strip()

    @staticmethod
    def _hunks(lines):
        """Each hunk as its file, the lines that it expects there, and those that it leaves."""
        file, before, after = None, [], []
        for line in [*lines, "@@"]:
            if line.startswith(("@@", "--- ", "+++ ")):
                if before or after:
                    yield file, before, after
                before, after = [], []
                if line.startswith("+++ "):
                    file = re.sub(r"^[^/]*/", "", line[4:].split("\t")[0])
            elif line[:1] in (" ", ""):
                before.append(line[1:])
                after.append(line[1:])
            elif line[0] == "-":
                before.append(line[1:])
            elif line[0] == "+":
                after.append(line[1:])
            else:
                raise PatchError(f"this is no line of a diff: {line}")

    def files(self):
        return sorted({file for file, _, _ in self.hunks})

    def changed(self, root):
        """What the patch makes of the files below `root`: texts by their paths. Changes nothing."""
        texts = {}
        for file, before, after in self.hunks:
            path = pathlib.Path(root) / file
            if file not in texts and not path.is_file():
                raise PatchError(f"there is no {file}")
            lines = texts.get(file) or path.read_text().split("\n")
            places = [at for at in range(len(lines)) if lines[at : at + len(before)] == before]
            if len(places) != 1:
                raise PatchError(f"{file} has what it looks for {len(places)} times: {before[len(before) // 2].strip()}")
            lines[places[0] : places[0] + len(before)] = after
            texts[file] = lines
        return {file: "\n".join(lines) for file, lines in texts.items()}


def all_paths():
    return sorted(pathlib.Path(__file__).parent.glob("*.patch"))
