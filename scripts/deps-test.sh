#!/usr/bin/env bash
# Makes .cache/venv with the pinned Python packages that tests use. Does nothing when it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.cache/venv
want=scripts/requirements-test.txt

if [ -x "$venv/bin/python" ] && cmp -s "$want" "$venv/installed.txt"; then
	echo "deps-test: the OpenAI SDK and schemas are in $venv"
	exit 0
fi

python=${PYTHON:-python3}
command -v "$python" >/dev/null || {
	echo "deps-test: $python not found: install Python 3.10 or newer, or name one with PYTHON=" >&2
	exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
	echo "deps-test: $("$python" --version) is too old: the OpenAI SDK wants 3.10 or newer" >&2
	exit 1
}

echo "deps-test: making $venv with $("$python" --version)"
rm -rf "$venv"
mkdir -p .cache
"$python" -m venv "$venv" || {
	echo "deps-test: no venv module: install python3-venv" >&2
	exit 1
}
echo "deps-test: installing $(grep -c '==' "$want") pinned packages"
"$venv/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps --progress-bar off -r "$want"
"$venv/bin/python" -c 'import openai, kubernetes_validate, cyclonedx; print("deps-test: openai", openai.__version__, "imports")'
cp "$want" "$venv/installed.txt"
