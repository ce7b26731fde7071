# SPDX-License-Identifier: Apache-2.0
"""vLLM's side of the live tests of a shared Store. Everything that decides is vLLM's own code: its engine
configuration builds the namespace, its media loader and hasher name pictures, its resolver reads and its
publisher writes. It answers one JSON object a line; MOONCAKE_CONFIG_PATH names the cluster.

usage: vllm_live.py MODEL PREFIX
"""

import hashlib
import json
import os
import sys

# What libraries print goes elsewhere than the answers.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import torch  # noqa: E402
from vllm.config import ECTransferConfig  # noqa: E402
from vllm.distributed.ec_transfer.ec_connector.mooncake_store_embedding import backend, data, store_client  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.multimodal.hasher import MultiModalHasher  # noqa: E402
from vllm.multimodal.media import MediaConnector  # noqa: E402
from vllm.multimodal.parse import ImageProcessorItems  # noqa: E402


class Side:
    def __init__(self, model, prefix):
        self.model, self.prefix, self.stores = model, prefix, {}
        self.client = store_client.create_mooncake_embedding_store_client()

    def store(self, dtype):
        """Returns resolver and publisher of a vLLM that is started with this --dtype."""
        if dtype not in self.stores:
            extra = {"cross_encoder_cache": True, "embedding_cache_prefix": self.prefix}
            transfer = ECTransferConfig(ec_connector="ECMooncakeConnector", ec_role="ec_producer", ec_connector_extra_config=extra)
            args = EngineArgs(model=self.model, dtype=dtype, max_model_len=2048, enforce_eager=True, ec_transfer_config=transfer)
            namespace = data.build_embedding_namespace(args.create_engine_config())
            self.stores[dtype] = backend.MooncakeEmbeddingStoreBackend(
                self.client, namespace, max_pending_items=32, max_pending_bytes=2 << 30
            )
        return self.stores[dtype]

    def names(self, dtype, pictures):
        """Returns the namespace, and vLLM's identifiers of picture files; null of one that it cannot load."""
        identifiers = []
        for picture in pictures:
            try:
                image = MediaConnector().fetch_image("data:image/png;base64," + picture)
            except Exception as err:
                print(f"vLLM cannot load a picture: {err}")
                identifiers.append(None)
                continue
            [item] = ImageProcessorItems([image]).get_all_items_for_hash()
            identifiers.append(MultiModalHasher.hash_kwargs("blake3", model_id=self.model, image=item))
        return {"namespace": self.store(dtype).namespace, "identifiers": identifiers}

    def expected(self, dtype, ids, rows, cols):
        spec = data.TensorSpec((rows, cols), f"torch.{dtype}", rows * cols * getattr(torch, dtype).itemsize)
        return dict.fromkeys(ids, spec)

    def resolve(self, dtype, ids, rows, cols):
        """Reads what is there; the sum of what is not is empty."""
        cache = {}
        self.store(dtype).resolve_inputs(self.expected(dtype, ids, rows, cols), cache, "cpu")
        return {"sums": [self.sum(cache[i]) if i in cache else "" for i in ids]}

    def publish(self, dtype, ids, rows, cols, seed):
        """Publishes random values, as an Encoder does that has missed and encoded."""
        store = self.store(dtype)
        store.resolve_inputs(self.expected(dtype, ids, rows, cols), {}, "cpu")
        random = torch.Generator().manual_seed(seed)
        tensors = [torch.randn(rows, cols, generator=random).to(getattr(torch, dtype)) for _ in ids]
        for identifier, tensor in zip(ids, tensors):
            store.save_output(identifier, tensor)
        for future, _ in list(store._pending.values()):
            future.result()
        store.reap()
        return {"sums": [self.sum(t) for t in tensors]}

    def sum(self, tensor):
        return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def main():
    side = Side(*sys.argv[1:])
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            answer = getattr(side, ask.pop("op"))(**ask)
        except Exception as err:  # the test says so
            answer = {"error": f"{type(err).__name__}: {err}"}
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # without Mooncake's destructors, which may wait for servers that are being stopped


if __name__ == "__main__":
    main()
