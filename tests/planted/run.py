#!/usr/bin/env python3
"""Plants each bug of this folder in a copy of the tree, and sees whether the tests that it names notice.

Usage: run.py [NAME...]; a name is that of a patch file, or the beginning of it. Called by `./dev planted`.

The copy and its build stay in build/planted/, so a second run compiles little. On the clean copy the tests must pass
first: a test that fails by itself notices nothing.
"""

import ctypes
import json
import os
import pathlib
import selectors
import shutil
import signal
import subprocess
import sys
import time

import patches

ROOT = pathlib.Path(__file__).resolve().parents[2]
AREA = ROOT / "build" / "planted"
TREE, BUILD = AREA / "tree", AREA / "build"
MESON_OPTIONS = ["--wrap-mode=nodownload", "-Dbuildtype=debug", "-Ddefault_library=static", "-Dtests=enabled"]
PR_SET_CHILD_SUBREAPER = 36


class Trouble(Exception):
    """What makes a run worthless."""


# --- the copy ---------------------------------------------------------------------------------------------------------


def write_if_new(path, data, mode):
    """Leaves a file alone that is right already: its time tells ninja what to compile."""
    if path.is_file() and not path.is_symlink() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def copy_tree():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
    wanted = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in wanted:
        write_if_new(TREE / name, (ROOT / name).read_bytes(), (ROOT / name).stat().st_mode)
    for old in TREE.rglob("*"):
        name = old.relative_to(TREE)
        if name.parts[0] != "subprojects" and old.is_file() and str(name) not in wanted:
            old.unlink()
    for folder in (ROOT / "subprojects").iterdir():
        if folder.is_dir() and folder.name != "packagefiles":
            for file in folder.rglob("*"):
                if file.is_file():
                    write_if_new(TREE / file.relative_to(ROOT), file.read_bytes(), file.stat().st_mode)


def configure():
    if not (BUILD / "build.ninja").is_file():
        shutil.rmtree(BUILD, ignore_errors=True)
        command = ["meson", "setup", str(BUILD), str(TREE), *MESON_OPTIONS]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Trouble("the copy could not be configured:\n" + done.stdout[-4000:])
    compile_targets(["build.ninja"])  # where the build files have changed
    command = ["meson", "introspect", "--tests", str(BUILD)]
    tests = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    return {test["name"]: test for test in tests}


def compile_targets(targets):
    """Returns whether it compiles, and what the compiler said."""
    command = ["ninja", "-C", str(BUILD), "-j", str(os.cpu_count() or 1), *targets]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode == 0, done.stdout


def target_of(test):
    program = pathlib.Path(test["cmd"][0])
    return [str(program.relative_to(BUILD))] if program.is_relative_to(BUILD) else []


# --- running a test ---------------------------------------------------------------------------------------------------


class Outcome:
    def __init__(self, failure, seconds):
        self.failure = failure  # None: it passed
        self.seconds = seconds


def run_test(test, pattern, limit_s):
    """Runs a test program up to its first failure."""
    command = [*test["cmd"], *([pattern] if pattern else [])]
    if shutil.which("stdbuf"):
        command = ["stdbuf", "-oL", *command]  # failures are known as they happen
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **test["env"]},
        cwd=test.get("workdir") or BUILD,
        start_new_session=True,
    )
    try:
        failure = follow(process, test["protocol"] == "tap", began + limit_s)
    finally:
        end_all(process)
    return Outcome(failure, time.monotonic() - began)


def follow(process, is_tap, deadline):
    """What went wrong; None where nothing did."""
    planned, passed, rest = None, 0, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not selector.select(left_s):
                return f"no end in time, after {passed} good cases"
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                text = line.decode(errors="replace").strip()
                if text.startswith("not ok") and "# TODO" not in text:
                    return text.partition(" - ")[2].split(" #")[0] or text
                if text.startswith("1.."):
                    planned = int(text[3:].split()[0])
                passed += text.startswith("ok ")
    try:
        code = process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"no end in time, after {passed} good cases"
    if code < 0:
        return f"died of {signal.Signals(-code).name}, after {passed} good cases"
    if code != 0:
        return f"exit code {code}, after {passed} good cases"
    if is_tap and (not planned or passed < planned):
        return f"only {passed} of {planned} cases reported"
    return None


def end_all(process):
    """The program, what it started, and what those started: nothing outlives a test."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.stdout.close()
    process.wait()
    # Orphans come to us, see main(). Some remove folders and end by themselves.
    patient_until = time.monotonic() + 5
    while children():
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(0.02)
            if time.monotonic() > patient_until:
                for child in children():
                    os.kill(child, signal.SIGKILL)


def children():
    listed = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listed.split()]


# --- the run ----------------------------------------------------------------------------------------------------------


class Row:
    def __init__(self, patch):
        self.name = patch.name
        self.breaks = patch.breaks
        self.verdict = "MISSED"
        self.good = False
        self.seconds = 0.0


class Run:
    def __init__(self, chosen):
        self.chosen = chosen
        copy_tree()
        self.tests = configure()
        self.clean_s = {}  # how long a test takes on the clean tree, by how it is named
        for patch in chosen:
            for named in patch.tests:
                if named.split(":")[0] not in self.tests:
                    raise Trouble(f"{patch.name} names the test {named}, which is not there")

    def check_clean(self):
        named = sorted({test for patch in self.chosen for test in patch.tests})
        targets = sorted({target for each in named for target in target_of(self.test(each))})
        compiles, said = compile_targets(targets)
        if not compiles:
            raise Trouble("the clean tree does not compile:\n" + said[-4000:])
        for each in named:
            outcome = self.run(each, self.test(each)["timeout"])
            if outcome.failure:
                raise Trouble(f"{each} fails on the clean tree: {outcome.failure}")
            self.clean_s[each] = outcome.seconds

    def test(self, named):
        return self.tests[named.split(":")[0]]

    def run(self, named, limit_s):
        return run_test(self.test(named), named.partition(":")[2], limit_s)

    def plant(self, patch):
        row = Row(patch)
        began = time.monotonic()
        kept = {}
        try:
            for file, text in patch.changed(TREE).items():
                kept[file] = (TREE / file).read_bytes()
                (TREE / file).write_text(text)
            self.look_for(patch, row)
        except patches.PatchError as why:
            row.verdict = f"DOES NOT APPLY: {why}"
        finally:
            for file, data in kept.items():
                (TREE / file).write_bytes(data)
        row.seconds = time.monotonic() - began
        return row

    def look_for(self, patch, row):
        for named in patch.tests:
            compiles, said = compile_targets(target_of(self.test(named)))
            if not compiles:
                errors = [line for line in said.splitlines() if "error:" in line]
                row.verdict = "DOES NOT COMPILE: " + (errors or said.splitlines()[-1:])[0]
                return
            warned = " (compiles with a warning)" if "warning:" in said else ""
            # Slow machines get what they need; a hang is a catch of the test's time-out, so that is kept short.
            outcome = self.run(named, min(self.test(named)["timeout"], 30 + 3 * self.clean_s[named]))
            if outcome.failure:
                row.good = True
                row.verdict = f"{named.split(':')[0]}: {outcome.failure}{warned}"
                return


def choose(names):
    chosen = []
    for path in patches.all_paths():
        if not names or any(path.stem.startswith(name) or path.stem.partition("-")[2] == name for name in names):
            try:
                chosen.append(patches.Patch(path))
            except patches.PatchError as why:
                raise Trouble(f"{path.name}: {why}") from why
    if not chosen:
        raise Trouble("there is no planted bug of that name")
    return chosen


def show_table(rows):
    name_width = max(len(row.name) for row in rows)
    breaks_width = max(len(row.breaks) for row in rows)
    print(f"\n{'name':{name_width}}  {'what it breaks':{breaks_width}}  seconds  caught by")
    for row in rows:
        print(f"{row.name:{name_width}}  {row.breaks:{breaks_width}}  {row.seconds:7.1f}  {row.verdict}")


def main(names):
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.monotonic()
    try:
        run = Run(choose(names))
        print(f"== {len(run.chosen)} planted bugs; first, their tests on the clean tree", flush=True)
        run.check_clean()
    except Trouble as why:
        print(f"planted: {why}", file=sys.stderr)
        return 1
    print(f"   they pass, {time.monotonic() - began:.0f} s", flush=True)
    rows = []
    for patch in run.chosen:
        rows.append(run.plant(patch))
        print(f"{rows[-1].name}: {rows[-1].verdict} ({rows[-1].seconds:.0f} s)", flush=True)
    show_table(rows)
    bad = sum(not row.good for row in rows)
    print(f"{len(rows) - bad} of {len(rows)} caught, {time.monotonic() - began:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
