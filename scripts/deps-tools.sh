#!/usr/bin/env bash
# Sees to it that there are the programs that tests hold files against: the shells of completion scripts and what
# checks units of systemd. One on PATH is taken as it is; else Debian's package of it, with the libraries that the
# system lacks, is unpacked into .cache/tools. Nothing is installed, and nothing outside the cache is changed.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=.cache/tools
say() { echo "deps-tools: $*"; }
fail() {
	echo "deps-tools: error: $*" >&2
	exit 1
}

# Each program, and the package that has it.
declare -A wanted=([zsh]=zsh [fish]=fish [systemd-analyze]=systemd)
missing=()
for program in "${!wanted[@]}"; do
	command -v "$program" >/dev/null || [ -x "$folder/usr/bin/$program" ] || [ -x "$folder/bin/$program" ] || missing+=("${wanted[$program]}")
done
if [ ${#missing[@]} = 0 ]; then
	say "${!wanted[*]} are there"
	exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
	fail "no apt-get to take them with; install packages of the names ${missing[*]}"

# uris prints the packages that an installation would fetch, one quoted address per line.
uris() { apt-get install --yes --no-install-recommends --print-uris "${missing[@]}" 2>/dev/null | grep "^'"; }

list=$(uris || true)
if [ -z "$list" ] && [ "$(id -u)" = 0 ]; then # no package lists yet
	apt-get update -q >/dev/null
	list=$(uris || true)
fi
[ -n "$list" ] || fail "apt-get knows no packages ${missing[*]}; install some of these names"

mkdir -p .cache
work=$(mktemp -d .cache/.deps-tools-XXXXXX)
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
say "${missing[*]} are in $folder"
