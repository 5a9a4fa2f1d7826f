#!/usr/bin/env bash
# Builds a small program with the whole project as a Meson subproject of its own; then edits a Lua script in there and
# sees the embedded copy follow.
#
# usage: subproject.sh SOURCE_FOLDER HERE
set -euo pipefail
source=$1 here=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/subprojects/syncguard"
tar -C "$source" --exclude=./build --exclude=./.git -cf - . | tar -C "$work/subprojects/syncguard" -xf -
cp "$here"/consumer*.cpp "$work"
cat >"$work/meson.build" <<'END'
project('consumer', 'cpp', default_options: ['cpp_std=c++20'])
dependency('syncguard', fallback: 'syncguard')
executable('consumer', 'consumer.cpp', dependencies: dependency('syncguard-uv'))
END

quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }
quietly meson setup "$work/build" "$work" --wrap-mode nodownload -Dbuildtype=debug
quietly meson compile -C "$work/build"
"$work/build/consumer" | grep -q 'InvalidArgument'
echo "consumer as a superproject: fine"

# As static and shared library alone, too.
for kind in static shared; do
  quietly meson setup "$work/build-$kind" "$work" --wrap-mode nodownload -Dbuildtype=debug "-Ddefault_library=$kind" \
    "-Dsyncguard:default_library=$kind"
done
echo "consumer with default_library static and shared: configured"

embedded=$work/build/subprojects/syncguard/lua/syncguard_scripts.hpp
quietly meson compile -C "$work/build" syncguard_scripts.hpp
before=$(sha256sum <"$embedded")
echo '-- edited' >>"$work/subprojects/syncguard/lua/lookup.lua"
quietly meson compile -C "$work/build" syncguard_scripts.hpp
grep -q -- '-- edited' "$embedded"
grep -q "$(sha1sum "$work/subprojects/syncguard/lua/lookup.lua" | cut -d' ' -f1)" "$embedded"
[ "$before" != "$(sha256sum <"$embedded")" ]
echo "an edited script is embedded anew: fine"
