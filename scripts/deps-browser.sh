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
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
	fail "no Chromium, and no apt-get to take one with; install a package of the name chromium"

# uris prints the packages that an installation would fetch, one quoted address per line.
uris() { apt-get install --yes --no-install-recommends --print-uris "$package" 2>/dev/null | grep "^'"; }

list=$(uris || true)
if [ -z "$list" ] && [ "$(id -u)" = 0 ]; then # no package lists yet
	apt-get update -q >/dev/null
	list=$(uris || true)
fi
[ -n "$list" ] || fail "apt-get knows no package $package; install a package of the name chromium"

mkdir -p .cache
work=$(mktemp -d .cache/.deps-browser-XXXXXX)
trap 'rm -rf "$work"' EXIT
say "downloading $(wc -l <<<"$list") packages ($(awk '{ n += $3 } END { print int(n / 1048576) }' <<<"$list") MiB)"
mapfile -t names < <(awk '{ print $2 }' <<<"$list" | cut -d_ -f1)
(cd "$work" && apt-get download -q -o APT::Sandbox::User=root "${names[@]}" >download.log 2>&1) ||
	fail "apt-get could not download ${names[*]}: $(tail -n 3 "$work/download.log")"
for deb in "$work"/*.deb; do
	dpkg-deb -x "$deb" "$work/root"
done
rm -rf "$folder"
mv "$work/root" "$folder"
[ -x "$browser" ] || fail "$package came without $browser"
say "Chromium is in $folder"
