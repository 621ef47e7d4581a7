#!/usr/bin/env bash
# Programs that only some tests need: Chromium for the dashboard, promtool for the alert rules. Installed where
# that is possible (as root on Debian); the tests that miss one say so and are skipped.
set -euo pipefail

missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v promtool >/dev/null || missing+=(prometheus)
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed: ${missing[*]}; the tests that need them are skipped"
    exit 0
fi
echo "installing ${missing[*]} for the tests"
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && apt-get install --yes --no-install-recommends "${missing[@]}" fonts-dejavu-core; } \
    >/tmp/headrace-tools.$$ 2>&1; then
    tail -n 3 /tmp/headrace-tools.$$
    echo "could not install ${missing[*]}; the tests that need them are skipped"
fi
rm -f /tmp/headrace-tools.$$
