# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Environment of the programs that `make peers` installed; to be sourced. PEERS says where they are.
PEERS=${PEERS:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.cache/peers}
export PEERS PATH="$PEERS/venv/bin:$PATH"
# Mooncake's libraries that the system may lack are those of `make deps-mooncake`.
LD_LIBRARY_PATH=$(echo "${PEERS%/*}"/mooncake/*-"$(uname -m)")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
export MC_FORCE_TCP=1 MC_TCP_ENABLE_CONNECTION_POOL=1 GLOG_minloglevel=1
# vLLM on CPU, on this host only, one thread, nothing fetched and nothing reported.
export VLLM_TARGET_DEVICE=cpu VLLM_HOST_IP=127.0.0.1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_USE_V2_MODEL_RUNNER=0
# Compiled modules save half a minute of each start.
unset PYTHONDONTWRITEBYTECODE
