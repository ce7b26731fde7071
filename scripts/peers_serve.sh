#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a vLLM worker of `make peers` in the foreground, on 127.0.0.1 and a random-weight model:
#
#   scripts/peers_serve.sh encoder PORT FOLDER         an Encoder, which hands its outputs over as files in FOLDER
#   scripts/peers_serve.sh prefill PORT FOLDER         the P/D that takes them
#   scripts/peers_serve.sh encoder-mooncake PORT MASTER   an Encoder that pushes to P/Ds and shares its outputs in the
#                                                      Mooncake cluster of MASTER, host:port
#   scripts/peers_serve.sh prefill-mooncake PORT CONTROL  the P/D that takes pushes; CONTROL is its control channel's port
#   scripts/peers_serve.sh whole PORT                  a server that does both
#
# The two with Mooncake run with scripts/peers_plugin.py, which says what it changes in vLLM; the others are as vLLM
# made them. Each is up when GET /health says 200, after one to two minutes, and takes 3 to 4 GiB of memory.
set -euo pipefail
role=${1:-} port=${2:-} with=${3:-}
usage() {
	sed -n '/^#   scripts/s/^# //p' "$0" >&2
	exit 2
}
files() {
	echo '{"ec_connector":"ECExampleConnector","ec_role":"ec_'"$1"'","ec_connector_extra_config":{"shared_storage_path":"'"$with"'"}}'
}
mooncake() {
	echo '{"ec_connector":"ECMooncakeConnector","ec_role":"ec_'"$1"'","ec_ip":"127.0.0.1","ec_buffer_device":"cpu","ec_buffer_size":67108864,'"$2"'}'
}
[ -n "$port" ] && { [ "$role" = whole ] || [ -n "$with" ]; } || usage
case $role in
encoder) args=(--ec-transfer-config "$(files producer)") ;;
prefill) args=(--enable-mm-embeds --ec-transfer-config "$(files consumer)") ;;
encoder-mooncake)
	args=(--max-num-batched-tokens 16384 --ec-transfer-config "$(mooncake producer '"ec_connector_extra_config":{"mooncake_protocol":"tcp","cross_encoder_cache":true,"store_read_buffer_bytes":8388608}')")
	settings=$(mktemp --suffix=.json)
	echo '{"mode":"standalone-store","metadata_server":"P2PHANDSHAKE","master_server_address":"'"$with"'","protocol":"tcp","device_name":"","global_segment_size":0,"local_buffer_size":"64mb"}' >"$settings"
	export AFTERIMAGE_PEERS_PLUGIN=1 MOONCAKE_CONFIG_PATH=$settings
	;;
prefill-mooncake)
	args=(--enable-mm-embeds --ec-transfer-config "$(mooncake consumer '"ec_port":'"$with"',"ec_connector_extra_config":{"mooncake_protocol":"tcp","push_wait_timeout_s":15}')")
	export AFTERIMAGE_PEERS_PLUGIN=1
	;;
whole) args=() ;;
*) usage ;;
esac
# shellcheck source=scripts/peers_env.sh
source "$(dirname "$0")/peers_env.sh"
[ -f "$PEERS/models/tiny-vl/config.json" ] || { echo "peers_serve: no model in $PEERS: run make peers" >&2 && exit 1; }
# By its interpreter: the path in its first line is that of the checkout that installed it.
exec python "$PEERS/venv/bin/vllm" serve "$PEERS/models/tiny-vl" --served-model-name tiny-vl --host 127.0.0.1 --port "$port" --max-model-len 2048 \
	--max-num-seqs 8 --enforce-eager --dtype bfloat16 --no-enable-prefix-caching --limit-mm-per-prompt '{"image":4}' \
	--enable-request-id-headers --distributed-executor-backend uni "${args[@]}"
