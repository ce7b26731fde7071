#!/usr/bin/env bash
# Sees to it that there is a headless Chromium for the tests of the dashboard. One on PATH is taken as it is;
# else Debian's packages of it, with the libraries that the system lacks, are unpacked into .cache/browser.
# Nothing is installed, and nothing outside the cache is changed.
set -euo pipefail
cd "$(dirname "$0")/.."

package=chromium-headless-shell
folder=.cache/browser
browser=$folder/usr/lib/chromium/$package

say() { echo "deps-browser: $*"; }
fail() {
	echo "deps-browser: error: $*" >&2
	exit 1
}

for name in chromium-headless-shell chromium chromium-browser google-chrome; do
	if command -v "$name" >/dev/null; then
		say "$("$name" --version 2>/dev/null) is on PATH"
		exit 0
	fi
done
if [ -x "$browser" ]; then
	say "$folder is complete"
	exit 0
fi
. scripts/debs.sh

debs_needed "$package"
[ -n "$needed" ] || fail "apt-get knows no package $package; install a package of the name chromium"
mapfile -t names < <(debs_names)
debs_unpack "$folder" "${names[@]}"
[ -x "$browser" ] || fail "$package came without $browser"
say "Chromium is in $folder"
