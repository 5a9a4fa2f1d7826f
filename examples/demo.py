#!/usr/bin/env python3
"""The director of `./dev demo`: three game servers share six matches through locks, and survive what happens to them.

usage: demo.py GAME_SERVER FENCED_STORE

Starts a private Redis, the store and the servers; kills one, pauses one, ends one; shows what they say as a timeline,
and who runs what after each act. Whatever it claims it checks. Exit code 0: all of it held.
"""

import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TTL_S = 3  # as in game_server.cpp
MATCHES = [f"match:{number}" for number in range(1, 7)]
MATCHES_MAX = 3  # on one server, as in game_server.cpp
PATIENCE_S = 30  # far more than anything here needs: machines may be slow
READING_S = 2 if sys.stdout.isatty() else 0.5  # time to read between the acts

COLOURS = {"ada": "36", "ben": "35", "cleo": "33", "ok": "32", "FAILED": "1;31", "act": "1"}


def paint(text, kind):
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ or kind not in COLOURS:
        return text
    return f"\033[{COLOURS[kind]}m{text}\033[0m"


class Process:
    """A program that says things, line by line."""

    def __init__(self, name, command):
        self.name = name
        self.paused = False
        self.unread = b""
        # Should the director be killed itself, its actors go with it.
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self.child = subprocess.Popen(leash + command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT)

    def read(self):
        """The lines that have come; None at the end."""
        chunk = os.read(self.child.stdout.fileno(), 65536)
        *lines, self.unread = (self.unread + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines] if chunk else None

    def running(self):
        return self.child.poll() is None

    def send(self, number):
        self.child.send_signal(number)
        self.paused = number == signal.SIGSTOP

    def end(self):
        self.child.kill()
        self.child.wait()


class Stage:
    """All processes, the timeline of what they say, and the checks."""

    def __init__(self):
        self.start = time.monotonic()
        # The path of a socket has about 100 characters at most.
        place = "/tmp" if len(tempfile.gettempdir()) > 60 else None
        self.folder = tempfile.mkdtemp(prefix="syncguard-demo-", dir=place)
        self.redis_path = os.path.join(self.folder, "redis.sock")
        self.pipes = selectors.DefaultSelector()
        self.said = []  # (when, who, what)
        self.processes = []
        self.servers = {}
        self.ports = {}
        self.checks = []
        self.looks = 0  # at who runs what
        self.doubles = []  # matches that two said to run
        self.troubled = []  # the servers to which something has happened

    # --- the timeline ---

    def tell(self, who, what):
        seconds = time.monotonic() - self.start
        what = re.sub(r"\b0{5,}(\d)", r"\1", what)  # a fence has 15 digits
        print(f"  {seconds:5.2f} s  {paint(f'{who:<6}', who)} {what}", flush=True)

    def act(self, title, *explanation):
        print("\n" + paint(title, "act"), *explanation, sep="\n  ", flush=True)

    def listen(self, seconds):
        """Notes what the processes say; returns after so long, or when something was said."""
        for key, _ in self.pipes.select(seconds):
            lines = key.data.read()
            if lines is None:
                self.pipes.unregister(key.fileobj)
            for line in lines or []:
                self.note(key.data.name, line)

    def note(self, who, what):
        self.said.append((time.monotonic(), who, what))
        found = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)", what)
        if found:
            self.ports[who] = int(found[1])
        elif who != "redis":
            self.tell(who, what)

    def until(self, condition):
        """What the condition tells once that is true; or what it tells when patience ends."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.listen(0)
            outcome = condition()
            if outcome or time.monotonic() > deadline:
                return outcome
            self.listen(0.05)

    def pause(self, seconds):
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.listen(left)

    def search(self, who, pattern, since=0.0):
        """All that somebody said like this: (when, match)."""
        found = [(when, re.search(pattern, what)) for when, name, what in self.said if name == who and when >= since]
        return [(when, match) for when, match in found if match]

    def check(self, claim, held):
        self.checks.append(bool(held))
        print(f"  {paint('ok', 'ok') if held else paint('FAILED', 'FAILED')}: {claim}", flush=True)

    # --- the actors ---

    def run(self, name, command):
        process = Process(name, command)
        self.processes.append(process)
        self.pipes.register(process.child.stdout, selectors.EVENT_READ, process)
        return process

    def start_redis(self):
        self.run("redis", ["redis-server", "--port", "0", "--unixsocket", self.redis_path, "--dir", self.folder,
                           "--save", "", "--appendonly", "no", "--loglevel", "warning"])
        self.require("redis", lambda: self.redis("PING") == "+PONG")

    def start_store(self, program):
        self.store = self.run("store", [program])
        self.require("store", lambda: "store" in self.ports)

    def start_servers(self, program, names):
        for name in names:
            self.ports.pop(name, None)
            command = [program, name, f"unix://{self.redis_path}", str(self.ports["store"])]
            self.servers[name] = self.run(name, command)
        for name in names:
            self.require(name, lambda: name in self.ports)

    def require(self, name, ready):
        """Waits until a process that was started is ready."""
        process = [process for process in self.processes if process.name == name][-1]
        self.until(lambda: ready() or not process.running())
        if not ready():
            self.pause(0.2)
            words = [what for _, who, what in self.said if who == name]
            raise RuntimeError("\n    ".join([f"{name} does not start; its last words:"] + words[-5:]))

    def redis(self, command):
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(PATIENCE_S)
                link.connect(self.redis_path)
                link.sendall(command.encode() + b"\r\n")
                return link.makefile().readline().rstrip()
        except OSError:
            return ""

    def talk(self, name, request, last_line):
        """The answer of a process: its lines until one looks like this, as far as it comes."""
        lines = [""]
        try:
            with socket.create_connection(("127.0.0.1", self.ports[name]), PATIENCE_S) as link:
                link.sendall(request.encode() + b"\n" if request else b"")
                answer = link.makefile()
                while line := answer.readline():
                    lines.append(line.rstrip())
                    if re.match(last_line, line):
                        break
        except OSError:
            pass  # it is ending, or has ended
        return lines

    # --- what they own ---

    def fences(self, name):
        """{match: fence} of a server, as it says itself; nothing of one that cannot answer."""
        if not self.servers[name].running() or self.servers[name].paused:
            return {}
        status = self.talk(name, "", name)[-1]
        return {key: int(fence) for key, fence in re.findall(r"(match:\d)=(\d+)", status)}

    def owners(self):
        """{match: [(server, fence)]}"""
        fences = {name: self.fences(name) for name in self.servers}
        owners = {key: [(name, fences[name][key]) for name in fences if key in fences[name]] for key in MATCHES}
        self.looks += 1
        self.doubles += [f"{key}: {names}" for key, names in owners.items() if len(names) > 1]
        return owners

    def all_owned(self):
        owners = self.owners()
        return owners if all(len(names) == 1 for names in owners.values()) else None

    def board(self):
        """{match: (fence, score, writer)} as the store has it."""
        lines = [line.split() for line in self.talk("store", "SHOW", "end")]
        return {line[0]: (int(line[1]), int(line[2]), " ".join(line[3:])) for line in lines if len(line) > 3}

    def next_victim(self):
        """A server with many matches, and not always the same."""
        loads = {name: len(self.fences(name)) for name in self.servers}
        victim = max(loads, key=lambda name: (loads[name] > 0, name not in self.troubled, loads[name]))
        self.troubled.append(victim)
        return victim

    def free_at(self, keys):
        """{match: when Redis lets its lock go}, at the earliest."""
        now = time.monotonic()
        return {key: now + int(self.redis(f"PTTL syncguard:{key}")[1:]) / 1000 for key in keys}

    def taken(self, key, since):
        """When a match was taken for the first time since then, by whom."""
        found = [(when, who) for who in self.servers for when, _ in self.search(who, f"took {key} ", since)]
        return min(found, default=(float("inf"), "nobody"))

    def show(self):
        board = self.board()
        rows = {"": MATCHES}
        for name, server in self.servers.items():
            fences = self.fences(name)
            rows[name] = [f"fence {fences[key]}" if key in fences else "." for key in MATCHES]
            if server.paused or not server.running():
                rows[name] = ["(paused)" if server.paused else "(gone)"]
        rows["score"] = [str(board.get(key, (0, 0))[1]) for key in MATCHES]
        print()
        for name, cells in rows.items():
            print(f"  {paint(f'{name:<8}', name)} {''.join(f'{cell:<10}' for cell in cells)}".rstrip())
        print(flush=True)

    def close(self):
        for process in self.processes:
            process.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def list_of(items):
    return ", ".join(items)


def fences_rise(before, after):
    """Text for a check, and whether it holds."""
    steps = [f"{key} {fence} -> {after[key][0][1] if after else '?'}" for key, fence in before.items()]
    return list_of(steps), bool(after) and all(after[key][0][1] > fence for key, fence in before.items())


def share(stage, program):
    stage.act("ACT 1  Three game servers share six matches", "Each match has a lock. Who holds it runs the match, and",
              "writes the score to the store with the fence that came with the lock.")
    stage.start_servers(program, ["ada", "ben", "cleo"])
    owners = stage.until(stage.all_owned)
    before = stage.board()
    rising = stage.until(lambda: {key for key, entry in stage.board().items() if entry[1] > before.get(key, (0, 0))[1]}
                         == set(MATCHES))
    stage.show()
    stage.check("every match is run by exactly one server", owners)
    loads = [sum(entries[0][0] == name for entries in (owners or {}).values() if entries) for name in stage.servers]
    stage.check(f"no server runs more than {MATCHES_MAX}", owners and max(loads) <= MATCHES_MAX)
    stage.check("every score rises", rising)


def crash(stage):
    victim = stage.next_victim()
    orphans = stage.fences(victim)
    others = {name: stage.fences(name) for name in stage.servers if name != victim}
    stage.act(f"ACT 2  {victim} crashes", f"kill -9: it cannot give back {list_of(orphans)}. The others wait for them",
              f"in Redis, and get them when the time to live, {TTL_S} s, is over.")
    stage.servers[victim].send(signal.SIGKILL)
    stage.servers[victim].child.wait()
    killed = time.monotonic()
    scores = stage.board()
    stage.tell(victim, "is dead")
    free_at = stage.free_at(orphans)

    owners = stage.until(stage.all_owned)
    played_on = stage.until(lambda: all(stage.board()[key][2] != victim for key in orphans))
    board = stage.board()
    stage.show()
    stage.check(f"the others run all of {victim}'s matches", owners)
    when = [stage.taken(key, killed)[0] for key in orphans]
    stage.check(f"none was taken before Redis let it go; they were taken {min(when) - killed:.1f} to "
                f"{max(when) - killed:.1f} s after the crash",
                all(taken >= free_at[key] - 0.01 for key, taken in zip(orphans, when)))
    text, rose = fences_rise(orphans, owners)
    stage.check(f"with higher fences: {text}", rose)
    stage.check("their scores went on from where they stood",
                played_on and all(board[key][1] >= scores[key][1] for key in orphans))
    kept = all((name, fence) in owners[key] for name in others for key, fence in others[name].items()) if owners else 0
    stage.check("all other matches stayed where they were, with their fences", kept)


def stop_before_write(stage, name, key):
    """Stops a server between its check and its write. On a very busy machine the write may be faster: then again."""
    for _ in range(5):
        asked = time.monotonic()
        with socket.create_connection(("127.0.0.1", stage.ports[name]), PATIENCE_S) as link:
            link.sendall(f"slow-write {key}\n".encode())
            stage.until(lambda: stage.search(name, f"checked that {key}", asked))
            stage.servers[name].send(signal.SIGSTOP)
        stage.pause(0.2)
        if not stage.search(name, f"writes to {key}", asked):
            return
        stage.servers[name].send(signal.SIGCONT)
        stage.pause(1)
    raise RuntimeError("this machine is too slow to stop a server in the right moment")


def pause_and_resume(stage, program, returning):
    stage.start_servers(program, [returning])
    victim = stage.next_victim()
    orphans = stage.fences(victim)
    key = min(orphans)
    stage.act(f"ACT 3  {returning} is back; {victim} is paused, and writes too late",
              "SIGSTOP, after it checked that its lock is valid and before it writes: as if its machine was",
              "swapped out. No check can help, because no code of it runs while others take its matches.")
    stop_before_write(stage, victim, key)
    stage.tell(victim, f"is stopped, and still thinks that it runs {list_of(orphans)}")

    owners = stage.until(stage.all_owned)
    played_on = stage.until(lambda: all(stage.board()[each][2] != victim for each in orphans))
    stage.show()
    stage.check(f"the others run all of {victim}'s matches", owners and played_on)
    text, rose = fences_rise(orphans, owners)
    stage.check(f"with higher fences: {text}", rose)

    print(flush=True)
    continued = time.monotonic()
    stage.servers[victim].send(signal.SIGCONT)
    stage.tell(victim, "goes on (SIGCONT)")
    wrote = stage.until(lambda: stage.search(victim, f"writes to {key} with fence 0*{orphans[key]}$", continued))
    refused = stage.until(lambda: stage.search(victim, f"is refused at {key}", continued)
                          and stage.search("store", f"refused .* {key} with fence {orphans[key]}:", continued))
    lost = stage.until(lambda: all(stage.search(victim, f"lost {each} ", continued) for each in orphans))
    fence, score, writer = stage.board()[key]
    stage.show()
    stage.check(f"{victim}'s late write to {key} was refused by its fence", wrote and refused)
    stage.check(f"the store still has the score of {key}'s owner: {score}, by {writer} with fence {fence}",
                fence > orphans[key] and "late" not in writer and writer != victim)
    stage.check(f"{victim} noticed that it had lost {list_of(orphans)}", lost)


def hand_over(stage):
    victim = stage.next_victim()
    given = stage.fences(victim)
    stage.act(f"ACT 4  {victim} ends in good order", "SIGTERM: it closes its client, which gives back the locks. Redis",
              "tells those who wait at once; nobody needs the time to live.")
    free_at = stage.free_at(given)
    ended = time.monotonic()
    stage.servers[victim].send(signal.SIGTERM)
    gone = stage.until(lambda: not stage.servers[victim].running())
    owners = stage.until(stage.all_owned)
    stage.show()
    first = min(given, key=lambda key: stage.taken(key, ended)[0])
    when = stage.taken(first, ended)[0]
    stage.check(f"{victim} is gone, and the others run all of its matches", gone and owners)
    stage.check(f"the first changed hands {1000 * (when - ended):.0f} ms after the signal, not when its time was over",
                when < free_at[first])
    text, rose = fences_rise(given, owners)
    stage.check(f"with higher fences: {text}", rose)


def finish(stage):
    stage.act("CURTAIN", "All end in good order.")
    remaining = [server for server in stage.servers.values() if server.running()]
    for process in remaining:
        process.send(signal.SIGTERM)
    stage.until(lambda: not any(process.running() for process in remaining))
    stage.store.send(signal.SIGTERM)
    stage.until(lambda: not stage.store.running())
    stage.pause(0.1)
    print()
    ended = [process.child.poll() for process in remaining + [stage.store]]
    stage.check("those that were not killed ended with exit code 0", all(code == 0 for code in ended))
    takes = [re.match(r"took (match:\d) with fence (\d+)", what) for _, _, what in stage.said]
    fences = {key: [int(take[2]) for take in takes if take and take[1] == key] for key in MATCHES}
    takes = sum(map(len, fences.values()))
    stage.check(f"all {takes} times that a match was taken, its fence was higher than before",
                all(each == sorted(set(each)) for each in fences.values()))
    stage.check(f"in {stage.looks} looks at who runs what, no match had two owners", not stage.doubles)


def play(stage, game_server, store):
    print("Redis, a store that honours fences, and three game servers, all private to this demo.")
    stage.start_redis()
    stage.start_store(store)
    acts = [lambda: share(stage, game_server), lambda: crash(stage),
            lambda: pause_and_resume(stage, game_server, stage.troubled[0]), lambda: hand_over(stage),
            lambda: finish(stage)]
    for act in acts:
        act()
        if False in stage.checks:
            return  # what follows would build on it
        stage.pause(READING_S if act is not acts[-1] else 0)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    stage = Stage()
    try:
        play(stage, *sys.argv[1:])
        failed = stage.checks.count(False)
        seconds = time.monotonic() - stage.start
        print(f"\n{len(stage.checks) - failed} of {len(stage.checks)} checks held, in {seconds:.0f} s")
        return 1 if failed else 0
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130
    except (RuntimeError, OSError, KeyError, ValueError, IndexError) as trouble:
        print(f"\n  {paint('FAILED', 'FAILED')}: {trouble or type(trouble).__name__}")
        return 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stage.close()


if __name__ == "__main__":
    sys.exit(main())
