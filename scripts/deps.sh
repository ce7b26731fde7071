#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks for a usable Python and hands over to deps.py, which fetches the native libraries and the
# demo text model into .cache. Arguments are passed on; see `scripts/deps.sh --help`.
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
exec "$PYTHON" "$(dirname "$0")/deps.py" "$@"
