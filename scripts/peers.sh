#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes .cache/peers with the programs that benchmarks and live tests compare with (CONTRIBUTING.md says what is in
# it). A part that is there is left alone, and downloads of a run that was cut short are used by the next one.
set -euo pipefail
cd "$(dirname "$0")/.."

peers=$PWD/.cache/peers
venv=$peers/venv
want=scripts/requirements-peers.txt
uv_version=0.13.9
vllm=0.32.0
sdist_sha256=d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad
proxy_dir=examples/disaggregated/disaggregated_encoder
need_gib=12 # 6.5 unpacked, and the downloads beside it until the end

say() { echo "peers: $*"; }
fail() {
	echo "peers: error: $*" >&2
	exit 1
}

# find_python prints a Python 3.12, the one that the pinned packages are for.
find_python() {
	local p
	for p in "${PYTHON:-}" python3.12 "$HOME"/.pyenv/versions/3.12.*/bin/python /usr/local/bin/python3.12 python3; do
		if [ -n "$p" ] && "$p" -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then
			echo "$p"
			return
		fi
	done
	fail "no Python 3.12 with venv found: install one (Debian: apt install python3.12-venv; or pyenv install 3.12), or name it with PYTHON="
}

check_host() {
	[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "vLLM on CPU is packaged for Linux on x86-64; this is $(uname -s) on $(uname -m)"
	mkdir -p "$peers"
	[ -x "$venv/bin/vllm" ] && return
	local free
	free=$(df --output=avail -BG "$peers" | tail -1 | tr -dc 0-9)
	[ "$free" -ge "$need_gib" ] || fail "$peers has ${free} GiB free, $need_gib are needed: make room, or make .cache a link to a larger disk"
}

# install fills the venv with the pinned packages.
install() {
	if cmp -s "$want" "$venv/installed.txt"; then
		say "vLLM $vllm, Mooncake's Python client and vllm-router are in $venv"
		return
	fi
	if [ ! -x "$venv/bin/uv" ]; then
		local python
		python=$(find_python)
		say "making $venv with $("$python" --version)"
		rm -rf "$venv"
		"$python" -m venv "$venv"
		"$venv/bin/pip" install --disable-pip-version-check --no-input -q "uv==$uv_version"
	fi
	say "installing $(grep -c '==' "$want") pinned packages: 6.5 GiB, a minute and a half on a fast line"
	"$venv/bin/uv" pip install --no-progress --no-deps --compile-bytecode -r "$want"
	name_vllm
	cp "$want" "$venv/installed.txt"
}

# name_vllm lets `vllm serve` find its own version, which it looks up under the name vllm.
name_vllm() {
	local info
	info=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-$vllm+cpu.dist-info
	mkdir -p "$info"
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$info/METADATA"
	: >"$info/RECORD"
}

# plugin makes peers_plugin.py a plugin of vLLM, which does nothing unless it is asked to.
plugin() {
	local site
	site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	cp scripts/peers_plugin.py "$site/"
	mkdir -p "$site/peers_plugin-1.dist-info"
	printf 'Metadata-Version: 2.1\nName: peers_plugin\nVersion: 1\n' >"$site/peers_plugin-1.dist-info/METADATA"
	printf '[vllm.general_plugins]\npeers_plugin = peers_plugin:register\n' >"$site/peers_plugin-1.dist-info/entry_points.txt"
	: >"$site/peers_plugin-1.dist-info/RECORD"
}

# proxy takes vLLM's EPD proxy out of its source distribution; no wheel has it. The lock that uv writes tells where
# the index keeps the file.
proxy() {
	if [ -f "$peers/epd/.complete" ]; then
		say "vLLM's EPD proxy is in $peers/epd"
		return
	fi
	local work=$peers/.epd
	rm -rf "$work" "$peers/epd"
	mkdir -p "$work"
	echo "vllm==$vllm" >"$work/want.txt"
	"$venv/bin/uv" pip compile -q --no-deps --no-binary vllm --format pylock.toml -o "$work/pylock.toml" "$work/want.txt"
	say "taking the EPD proxy from vLLM's source distribution (43 MiB)"
	"$venv/bin/python" - "$work/pylock.toml" "$work/vllm.tar.gz" <<-'PY'
		import sys, tomllib, urllib.request
		with open(sys.argv[1], "rb") as f:
		    url = tomllib.load(f)["packages"][0]["sdist"]["url"]
		urllib.request.urlretrieve(url, sys.argv[2])
	PY
	echo "$sdist_sha256  $work/vllm.tar.gz" | sha256sum --check --quiet || fail "vLLM's source distribution has another hash than the pinned one"
	tar -xzf "$work/vllm.tar.gz" -C "$work" --strip-components=4 "vllm-$vllm/$proxy_dir"
	rm "$work/vllm.tar.gz"
	[ -f "$work/disagg_epd_proxy.py" ] || fail "vLLM's source distribution has no $proxy_dir/disagg_epd_proxy.py"
	touch "$work/.complete"
	mv "$work" "$peers/epd"
}

# model writes the small random-weight vision model that peers are run with.
model() {
	local out=$peers/models/tiny-vl
	if cmp -s scripts/peers_model.py "$out/made-by.py"; then
		say "the model is in $out"
		return
	fi
	rm -rf "$out"
	mkdir -p "$out"
	"$venv/bin/python" -W ignore scripts/peers_model.py "$out"
	cp scripts/peers_model.py "$out/made-by.py"
	say "wrote a random-weight Qwen2.5-VL into $out"
}

check() {
	# shellcheck source=scripts/peers_env.sh
	source scripts/peers_env.sh
	local said
	said=$(python -c 'import mooncake.store' 2>&1) ||
		fail "Mooncake's Python client does not load (Debian: apt install libcurl4 libibverbs1 libnuma1): $said"
	said=$(python -c 'from vllm.distributed.ec_transfer.ec_connector.mooncake_store_embedding import store_client' 2>&1) ||
		fail "vLLM's Store client does not load: $said"
	command -v vllm-router >/dev/null || fail "vllm-router is not in $venv/bin"
	command -v redis-server >/dev/null || say "no redis-server on PATH: benchmarks against it say 'not measured' (Debian: apt install redis-server)"
	say "ready: $(du -sh "$peers" | cut -f1) in $peers; source scripts/peers_env.sh to use them"
}

mkdir -p .cache
exec 9>.cache/.peers.lock
flock -n 9 || { say "another run fills $peers; waiting for it" && flock 9; }
# Downloads are kept beside the venv, so that they can be linked into it, until all is there.
export UV_CACHE_DIR=$peers/downloads VIRTUAL_ENV=$venv
rm -rf "$UV_CACHE_DIR"/interpreter-* # what uv remembers of a venv that is gone
# uv reads neither pip's settings nor the system's certificates by itself.
index=$(python3 -m pip config get global.index-url 2>/dev/null || true)
[ -n "${UV_DEFAULT_INDEX:-}" ] || [ -z "$index" ] || export UV_DEFAULT_INDEX=$index
[ -n "${SSL_CERT_FILE:-}" ] || [ ! -f /etc/ssl/certs/ca-certificates.crt ] || export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
unset PYTHONDONTWRITEBYTECODE
check_host
install
plugin
proxy
model
check
rm -rf "$UV_CACHE_DIR"
