#!/usr/bin/env python3
"""Turns Lua scripts into a C++ header: each becomes a constant with its text and its SHA1, the name that EVALSHA uses.

usage: embed.py OUTPUT SCRIPT.lua...
"""

import hashlib
import pathlib
import sys

HEAD = """\
#pragma once

// Made by lua/embed.py from lua/*.lua. Edit those.

#include <array>
#include <string_view>

namespace syncguard::scripts {

struct script {
  std::string_view name;
  std::string_view sha1;
  std::string_view text;
};

"""


def main(output, sources):
    parts = [HEAD]
    names = []
    for source in sorted(map(pathlib.Path, sources)):
        text = source.read_bytes()
        if b')lua"' in text:
            sys.exit(f'{source}: must not contain )lua" because the text becomes a raw string')
        name = source.stem
        names.append(name)
        parts.append(
            f'inline constexpr script {name}{{"{name}", "{hashlib.sha1(text).hexdigest()}", R"lua({text.decode()})lua"}};\n\n'
        )
    parts.append(f"inline constexpr std::array all{{{', '.join(names)}}};\n\n}}  // namespace syncguard::scripts\n")
    pathlib.Path(output).write_text("".join(parts))


main(sys.argv[1], sys.argv[2:])
