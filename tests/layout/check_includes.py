#!/usr/bin/env python3
"""Checks that includes point one way: each folder of src/ knows only what the table below grants it.

usage: check_includes.py PROJECT_FOLDER
"""

import pathlib
import re
import sys

VALUES = {"syncguard/error.hpp", "syncguard/export.hpp", "syncguard/fence.hpp", "syncguard/key_hash.hpp", "syncguard/lock_id.hpp",
          "syncguard/result.hpp"}
INPUT_OUTPUT = {"hiredis": r"(hiredis/)?(hiredis|hiredis_ssl|async|read|alloc|sds|net)\.h|adapters/.*",
                "libuv": r"uv\.h|uv/.*",
                "libevent": r"event2?/.*|event\.h|evhttp\.h",
                "sockets": r"sys/(socket|un|epoll|select)\.h|netdb\.h|netinet/.*|arpa/.*|poll\.h",
                "clocks": r"time\.h|ctime|chrono|sys/(time|timerfd)\.h",
                "threads": r"thread|mutex|condition_variable|future|pthread\.h",
                "chance": r"random|sodium\.h|sys/random\.h"}

# folder: (folders of ours it may include, kinds of input and output it may use, whether all public headers are open)
LAYERS = {
    "protocol": ({"protocol"}, {"chance"}, False),
    "engine": ({"protocol", "engine"}, set(), True),
    "redis": ({"protocol", "engine", "redis"}, {"hiredis", "sockets", "clocks", "threads", "chance"}, True),
    "loop": ({"redis", "loop"}, {"hiredis", "libuv", "libevent", "sockets", "clocks"}, True),
    "records": ({"protocol", "engine", "records"}, set(), True),
    "cli": ({"cli"}, {"libuv", "sockets", "clocks"}, True),
}
# The public classes, directly in src/, tie the layers together.
TOP = (set(LAYERS) - {"cli"}, set(INPUT_OUTPUT), True)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def faults_of(path, source_folder):
    parts = path.relative_to(source_folder).parts
    layer = parts[0] if len(parts) > 1 else None
    if layer is not None and layer not in LAYERS:
        yield 0, f"folder {layer} is not one of the layers {', '.join(LAYERS)}"
        return
    folders, kinds, all_public = LAYERS[layer] if layer else TOP
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        folder = name.split("/")[0] if "/" in name else ""
        if quote == '"' or folder in LAYERS:
            ours = folder in folders or (layer is None and not folder) or name == "syncguard_scripts.hpp"
            if not ours or quote != '"':
                yield number, f'{layer or "src"} may not include {quote}{name}'
            continue
        if name.startswith("syncguard/"):
            if not all_public and name not in VALUES:
                yield number, f"{layer} may not include <{name}>"
            if name in {"syncguard/uv.hpp", "syncguard/event.hpp"} and layer not in {"loop", "cli"}:
                yield number, f'{layer or "src"} may not include <{name}>'
        for kind, pattern in INPUT_OUTPUT.items():
            if kind not in kinds and re.fullmatch(pattern, name):
                yield number, f'{layer or "src"} may not use {kind}: <{name}>'


def check_public(project):
    """Public headers name no type of hiredis, libuv or libevent outside uv.hpp and event.hpp."""
    for path in sorted((project / "include").rglob("*.hpp*")):
        allowed = {"uv.hpp": {"libuv"}, "event.hpp": {"libevent"}}.get(path.name, set())
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, name = match.groups()
            if quote == '"' or name.split("/")[0] in LAYERS:
                yield path, number, f'public headers include nothing but each other, as <syncguard/...>: {name}'
            for kind in {"hiredis", "libuv", "libevent"} - allowed:
                if re.fullmatch(INPUT_OUTPUT[kind], name):
                    yield path, number, f"a public header may not use {kind}: <{name}>"


def check(project):
    faults = list(check_public(project))
    files = 0
    for path in sorted((project / "src").rglob("*.[ch]*")):
        files += 1
        faults += [(path, number, text) for number, text in faults_of(path, project / "src")]
    return files, faults


def main():
    project = pathlib.Path(sys.argv[1])
    files, faults = check(project)
    for path, number, text in faults:
        print(f"{path.relative_to(project)}:{number}: {text}")
    print(f"{files} files of src/, {len(faults)} includes that point the wrong way")
    sys.exit(1 if faults or files == 0 else 0)


if __name__ == "__main__":
    main()
