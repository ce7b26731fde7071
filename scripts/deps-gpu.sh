#!/usr/bin/env bash
# Sees to it that there is a software Vulkan driver for make test-gpu: Debian's lavapipe and the Vulkan loader,
# with the libraries that the system lacks, unpacked into .cache/gpu. Nothing is installed, and nothing outside
# the cache is changed.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=.cache/gpu
driver=libvulkan_lvp.so
packages=(libvulkan1 mesa-vulkan-drivers)

say() { echo "deps-gpu: $*"; }
fail() {
	echo "deps-gpu: error: $*" >&2
	exit 1
}

if [ -n "$(find "$folder" -name "$driver" 2>/dev/null)" ]; then
	say "$folder is complete"
	exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
	fail "there is no apt-get to take a software Vulkan driver with"

# uris prints the packages that an installation would fetch, one quoted address per line.
uris() { apt-get install --yes --no-install-recommends --print-uris "${packages[@]}" 2>/dev/null | grep "^'"; }

list=$(uris || true)
if [ -z "$list" ] && [ "$(id -u)" = 0 ]; then # no package lists yet
	apt-get update -q >/dev/null
	list=$(uris || true)
fi
names=("${packages[@]}") # also where they are installed, for the loader's path
[ -z "$list" ] || mapfile -t names < <({ printf '%s\n' "${packages[@]}"; awk '{ print $2 }' <<<"$list" | cut -d_ -f1; } | sort -u)

mkdir -p .cache
work=$(mktemp -d .cache/.deps-gpu-XXXXXX)
trap 'rm -rf "$work"' EXIT
say "downloading ${#names[@]} packages"
(cd "$work" && apt-get download -q -o APT::Sandbox::User=root "${names[@]}" >download.log 2>&1) ||
	fail "apt-get could not download ${names[*]}: $(tail -n 3 "$work/download.log")"
for deb in "$work"/*.deb; do
	dpkg-deb -x "$deb" "$work/root"
done
[ -n "$(find "$work/root" -name "$driver")" ] || fail "${packages[*]} came without $driver"
rm -rf "$folder"
mv "$work/root" "$folder"
say "lavapipe is in $folder"
