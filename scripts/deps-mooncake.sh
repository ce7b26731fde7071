#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks for a usable Python and hands over to deps_mooncake.py, which fetches Mooncake's master and
# client into .cache. Arguments are passed on; see `scripts/deps-mooncake.sh --help`.
set -eu
PYTHON=${PYTHON:-python3}
if ! command -v "$PYTHON" >/dev/null 2>&1; then
	echo "deps: $PYTHON is not installed; install Python >= 3.10 with pip and venv (Debian: apt install python3-pip python3-venv), or set PYTHON" >&2
	exit 1
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
	echo "deps: $PYTHON is $("$PYTHON" -V 2>&1); Python >= 3.10 is needed (set PYTHON to another one)" >&2
	exit 1
fi
# -B: no compiled copy of deps.py is left among the scripts
exec "$PYTHON" -B "$(dirname "$0")/deps_mooncake.py" "$@"
