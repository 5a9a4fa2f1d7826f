#!/usr/bin/env bash
# The shared library exports the public API and nothing else.
#
# usage: exports.sh LIBRARY
set -euo pipefail

exported=$(nm --dynamic --defined-only --demangle "$1" | cut -d' ' -f3-)
grep -q '^syncguard::library_version()' <<<"$exported" || { echo "library_version() is not exported" >&2; exit 1; }
strangers=$(grep -Ev '^syncguard::' <<<"$exported" || true)
internals=$(grep -E '^syncguard::(client::body|protocol|engine|redis|records|scripts)::' <<<"$exported" || true)
if [ -n "$strangers$internals" ]; then
  printf 'exported, but not part of the public API:\n%s\n%s\n' "$strangers" "$internals" >&2
  exit 1
fi
echo "$(wc -l <<<"$exported") symbols, all of them public"
