#!/usr/bin/env bash
# Makes what is released: for each architecture an archive with the program, manual pages, completions, documents and
# what is in deploy/, and beside it a bill of materials (CycloneDX) of the program; and SHA256SUMS of all. The same
# sources and toolchain give the same bytes: no path, time, name of a user or order of a directory gets in.
#
#   OUT    folder to make (dist)         ARCHS             architectures (amd64 arm64)
#   VERSION  (git describe)              SOURCE_DATE_EPOCH time of all files (that of the commit)
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC CGO_ENABLED=0 GOFLAGS=-trimpath

out=${OUT:-dist}
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
go=${GO:-go}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
rm -f "$out"/afterimage-*.tar.gz "$out"/afterimage-*.cdx.json "$out"/SHA256SUMS

build() { # architecture, file
	GOOS=linux GOARCH=$1 "$go" build -buildvcs=false -ldflags "-s -w -X afterimage/internal/cli.version=$version" -o "$2" ./cmd/afterimage
}

echo "dist: afterimage $version"
host=$("$go" env GOHOSTARCH)
build "$host" "$work/afterimage"
"$work/afterimage" man --out "$work/man"
mkdir "$work/completion"
for shell in bash zsh fish; do
	"$work/afterimage" completion "$shell" >"$work/completion/afterimage.$shell"
done
for arch in ${ARCHS:-amd64 arm64}; do
	name=afterimage-$version-linux-$arch
	stage=$work/$arch/$name
	mkdir -p "$stage"
	if [ "$arch" = "$host" ]; then cp "$work/afterimage" "$stage/"; else build "$arch" "$stage/afterimage"; fi
	cp -r LICENSE README.md ARCHITECTURE.md docs deploy examples "$work/man" "$work/completion" "$stage/"
	"$work/afterimage" version --sbom --of "$stage/afterimage" >"$out/$name.cdx.json"
	cp "$out/$name.cdx.json" "$stage/afterimage.cdx.json"
	chmod -R u=rwX,go=rX "$stage"
	tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=gnu -C "$work/$arch" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
	echo "dist: $out/$name.tar.gz"
done
(cd "$out" && sha256sum afterimage-*.tar.gz afterimage-*.cdx.json >SHA256SUMS)
echo "dist: $out/SHA256SUMS; check with sha256sum -c"
