# Sourced by the scripts that take Debian packages into the cache without installing them. The caller has defined
# fail and say, and runs in the root of the project.

# debs_needed PACKAGE... sets needed to the lines that apt-get prints of what an installation would fetch: a quoted
# address each, the file's name and its size.
debs_needed() {
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
		fail "no apt-get to take packages with; install ${*}"
	debs_uris() { apt-get install --yes --no-install-recommends --print-uris "$@" 2>/dev/null | grep "^'"; }
	needed=$(debs_uris "$@" || true)
	if [ -z "$needed" ] && [ "$(id -u)" = 0 ]; then # no package lists yet
		apt-get update -q >/dev/null
		needed=$(debs_uris "$@" || true)
	fi
}

# debs_names prints the packages of needed.
debs_names() { [ -z "$needed" ] || awk '{ print $2 }' <<<"$needed" | cut -d_ -f1; }

# debs_unpack FOLDER PACKAGE... puts the files of packages into FOLDER, in the place of what was there.
debs_unpack() {
	local folder=$1 deb
	shift
	mkdir -p .cache
	work=$(mktemp -d .cache/.debs-XXXXXXXX)
	trap 'rm -rf "$work"' EXIT
	say "downloading $# packages"
	(cd "$work" && apt-get download -q -o APT::Sandbox::User=root "$@" >download.log 2>&1) ||
		fail "apt-get could not download $*: $(tail -n 3 "$work/download.log")"
	for deb in "$work"/*.deb; do
		dpkg-deb -x "$deb" "$work/root"
	done
	rm -rf "$folder"
	mv "$work/root" "$folder"
}
