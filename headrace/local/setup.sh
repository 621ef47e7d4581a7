#!/usr/bin/env bash
# Make .venv ready. A stamp that is written last and names the inputs makes a second run instant, and an
# interrupted run is simply redone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

inputs="requirements.lock pyproject.toml headrace/local/ivy.xml"
stamp=.venv/headrace.stamp
# shellcheck disable=SC2086
want="$(cat $inputs | cksum) $PWD"
if [ -x .venv/bin/headrace ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
    exit 0
fi

find_python() {
    for name in python3 python3.13 python3.12 python3.11 python3.14; do
        if command -v "$name" >/dev/null &&
            "$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    echo "error: no Python 3.11 or newer with the venv module found on PATH" >&2
    echo "  → install one (for example: apt install python3.11-venv) and run again" >&2
    return 1
}

if ! .venv/bin/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python="$(find_python)"
    echo "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi
rm -f "$stamp"
echo "installing the locked packages"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
.venv/bin/python -m headrace.local.setup
echo "$want" >"$stamp.part"
mv "$stamp.part" "$stamp"
