#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a vLLM worker of `make peers` in the foreground, on 127.0.0.1 and a random-weight model:
#
#   scripts/peers_serve.sh encoder PORT FOLDER   an Encoder, which hands its outputs over as files in FOLDER
#   scripts/peers_serve.sh prefill PORT FOLDER   the P/D that takes them
#   scripts/peers_serve.sh whole PORT            a server that does both
#
# Each is up when GET /health says 200, after one to two minutes, and takes 3 to 4 GiB of memory.
set -euo pipefail
role=${1:-} port=${2:-} folder=${3:-}
connector() {
	[ -n "$folder" ] || { echo "peers_serve: name the folder through which Encoder and P/D hand files over" >&2 && exit 2; }
	echo '{"ec_connector":"ECExampleConnector","ec_role":"'"$1"'","ec_connector_extra_config":{"shared_storage_path":"'"$folder"'"}}'
}
case $role in
encoder) args=(--ec-transfer-config "$(connector ec_producer)") ;;
prefill) args=(--enable-mm-embeds --ec-transfer-config "$(connector ec_consumer)") ;;
whole) args=() ;;
*) echo "usage: peers_serve.sh encoder|prefill|whole PORT [FOLDER]" >&2 && exit 2 ;;
esac
# shellcheck source=scripts/peers_env.sh
source "$(dirname "$0")/peers_env.sh"
[ -f "$PEERS/models/tiny-vl/config.json" ] || { echo "peers_serve: no model in $PEERS: run make peers" >&2 && exit 1; }
exec vllm serve "$PEERS/models/tiny-vl" --served-model-name tiny-vl --host 127.0.0.1 --port "$port" --max-model-len 2048 \
	--max-num-seqs 8 --enforce-eager --dtype bfloat16 --no-enable-prefix-caching --limit-mm-per-prompt '{"image":4}' \
	--enable-request-id-headers --distributed-executor-backend uni "${args[@]}"
