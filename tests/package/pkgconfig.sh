#!/usr/bin/env bash
# Installs the library into an empty folder and builds small programs against it through pkg-config, as a user would:
# with the shared library, with the static one, and with each loop.
#
# usage: pkgconfig.sh SOURCE_FOLDER HERE
set -euo pipefail
source=$1 here=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/installed
compiler=${CXX:-c++}

run() { # NAME EXPECTED_OUTPUT PKG_CONFIG_ARGUMENTS...
  local name=$1 expected=$2
  shift 2
  local flags
  read -ra flags <<<"$(pkg-config --cflags --libs "$@")"
  "$compiler" -std=c++20 -Wall -Wextra -Werror "$here/$name.cpp" "${flags[@]}" -o "$work/$name"
  local seen
  seen=$(LD_LIBRARY_PATH=$prefix/lib "$work/$name")
  if [ "$seen" != "$expected" ]; then
    printf '%s through %s said:\n  %s\ninstead of\n  %s\n' "$name" "$*" "$seen" "$expected" >&2
    exit 1
  fi
  echo "$name through pkg-config $*: fine"
}

meson setup "$work/build" "$source" --prefix "$prefix" --libdir lib --wrap-mode nodownload \
  -Dtests=disabled -Dbuildtype=debug >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
meson install -C "$work/build" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
version=$(pkg-config --modversion syncguard)
expected="syncguard $version: InvalidArgument: the URL has no '://' (key \"match:42\")"

run consumer "$expected" syncguard-uv
if pkg-config --exists libevent; then
  run consumer_event "$expected" syncguard-event
else
  echo "consumer_event: skipped, this machine has no libevent"
fi

rm "$prefix"/lib/libsyncguard.so*
run consumer "$expected" --static syncguard-uv
if ldd "$work/consumer" | grep -q libsyncguard; then
  echo "the static program needs the shared library" >&2
  exit 1
fi
