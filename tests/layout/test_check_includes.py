#!/usr/bin/env python3
"""The check of include directions finds what it should: trees with one wrong include each, and one without."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.dont_write_bytecode = True
import check_includes  # noqa: E402


def faults(path, text):
    with tempfile.TemporaryDirectory() as folder:
        project = pathlib.Path(folder)
        (project / "include").mkdir()
        (project / "src").mkdir()
        file = project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return check_includes.check(project)[1]


class directions(unittest.TestCase):
    def test_wrong_ones_are_found(self):
        for path, line in [
            ("src/protocol/a.cpp", '#include "engine/wheel.hpp"'),
            ("src/protocol/a.cpp", "#include <syncguard/client.hpp>"),
            ("src/protocol/a.hpp", "#include <chrono>"),
            ("src/engine/a.cpp", '#include "redis/link.hpp"'),
            ("src/engine/a.cpp", "#include <hiredis.h>"),
            ("src/engine/a.cpp", "#include <hiredis/async.h>"),
            ("src/engine/a.cpp", "# include <uv.h>"),
            ("src/engine/a.hpp", "#include <event2/event.h>"),
            ("src/engine/a.hpp", "#include <sys/socket.h>"),
            ("src/engine/a.hpp", "#include <random>"),
            ("src/engine/a.hpp", "#include <thread>"),
            ("src/engine/a.cpp", "#include <redis/link.hpp>"),
            ("src/engine/a.h", '#include "redis/link.hpp"'),
            ("src/cli/a.cpp", "#include <protocol/record.hpp>"),
            ("include/syncguard/client.hpp", "#include <protocol/record.hpp>"),
            ("src/redis/a.cpp", "#include <uv.h>"),
            ("src/redis/a.cpp", '#include "loop/uv.hpp"'),
            ("src/records/a.cpp", '#include "redis/link.hpp"'),
            ("src/cli/a.cpp", '#include "protocol/record.hpp"'),
            ("src/client.cpp", '#include "cli/main.hpp"'),
            ("src/other/a.cpp", ""),
            ("include/syncguard/client.hpp", "#include <uv.h>"),
            ("include/syncguard/uv.hpp", "#include <hiredis/hiredis.h>"),
            ("include/syncguard/client.hpp", '#include "error.hpp"'),
        ]:
            with self.subTest(path=path, line=line):
                self.assertEqual(len(faults(path, line + "\n")), 1)

    def test_right_ones_are_let_through(self):
        for path, line in [
            ("src/protocol/a.cpp", '#include "protocol/b.hpp"'),
            ("src/protocol/a.cpp", "#include <syncguard/error.hpp>"),
            ("src/protocol/a.cpp", "#include <yyjson.h>"),
            ("src/engine/a.cpp", '#include "protocol/b.hpp"'),
            ("src/redis/a.cpp", "#include <hiredis/async.h>"),
            ("src/redis/a.cpp", '#include "syncguard_scripts.hpp"'),
            ("src/loop/a.cpp", "#include <uv.h>"),
            ("src/client.cpp", '#include "engine/b.hpp"'),
            ("src/client.cpp", '#include "client_body.hpp"'),
            ("include/syncguard/uv.hpp", "#include <uv.h>"),
            ("include/syncguard/event.hpp", "#include <event2/event.h>"),
        ]:
            with self.subTest(path=path, line=line):
                self.assertEqual(faults(path, line + "\n"), [])


unittest.main()
