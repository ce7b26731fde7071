#!/usr/bin/env bash
# Sees to it that there are the programs that tests hold files against: the shells of completion scripts, and what
# checks units of systemd and alert rules of Prometheus. One on PATH is taken as it is; else Debian's package of it, with the libraries that the
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
declare -A wanted=([zsh]=zsh [fish]=fish [systemd-analyze]=systemd [promtool]=prometheus)
packages=() missing=()
for program in "${!wanted[@]}"; do
	command -v "$program" >/dev/null && continue
	packages+=("${wanted[$program]}")
	[ -x "$folder/usr/bin/$program" ] || [ -x "$folder/bin/$program" ] || missing+=("${wanted[$program]}")
done
if [ ${#missing[@]} = 0 ]; then
	say "${!wanted[*]} are there"
	exit 0
fi
. scripts/debs.sh

# All that are not on PATH: what is in the folder makes way.
debs_needed "${packages[@]}"
[ -n "$needed" ] || fail "apt-get knows no package ${missing[*]}; install packages of these names"
mapfile -t names < <(debs_names | grep -v -e '^libjs-' -e '^fonts-') # those of Prometheus' own pages
debs_unpack "$folder" "${names[@]}"
say "${missing[*]} are in $folder"
