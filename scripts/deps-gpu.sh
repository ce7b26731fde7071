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
. scripts/debs.sh

debs_needed "${packages[@]}"
# The packages themselves also where they are installed, for the loader's path.
mapfile -t names < <({ printf '%s\n' "${packages[@]}"; debs_names; } | sort -u)
debs_unpack "$folder" "${names[@]}"
[ -n "$(find "$folder" -name "$driver")" ] || fail "${packages[*]} came without $driver"
say "lavapipe is in $folder"
