# SPDX-License-Identifier: Apache-2.0
"""A client of Mooncake's, for `afterimage bench --store mooncake` to compare with.

usage: peer.py KIND SOCKET MASTER NODE NAMESPACE ROOM

KIND is vllm (vLLM's own Store client and resolver), python (Mooncake's Python client) or dummy (the same,
through the mooncake_client at NODE). It connects to SOCKET and answers one JSON object a line. Times are
taken here, round the calls alone. ROOM bytes are read into and written from; Python's clients have them
registered once, vLLM does as it does.
"""

import ctypes
import hashlib
import json
import mmap
import os
import signal
import struct
import socket
import sys
import time

# An object of vLLM's: magic, dtype (bfloat16), rows, columns, and the values.
HEADER = struct.Struct("<IIQQ")
MAGIC, BFLOAT16 = 0x4D4F4F4E, 12


def payload(i, n):
    """Returns the values of object i of a request: n bytes that the caller makes in the same way."""
    return (bytes(range(64)) * (n // 64 + 2))[i % 64 :][:n]


def timed(call):
    start = time.perf_counter_ns()
    result = call()
    return (time.perf_counter_ns() - start) / 1e3, result


def expect(got, want, what):
    if got != want:
        raise RuntimeError(f"{what}: {got}, want {want}")


class Raw:
    """Mooncake's own client, which reads and writes whole objects."""

    def __init__(self, kind, master, node, namespace, room):
        from mooncake.store import MooncakeDistributedStore

        self.store, self.namespace = MooncakeDistributedStore(), namespace
        if kind == "dummy":
            expect(self.store.setup_dummy(2 * room + (16 << 20), 16 << 20, node), 0, "setup_dummy")
            self.reads, self.writes = (self.store.alloc_from_mem_pool(room) for _ in range(2))
        else:
            expect(self.store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", master), 0, "setup")
            self.memory = [mmap.mmap(-1, room) for _ in range(2)]
            self.reads, self.writes = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in self.memory)
        for base in (self.reads, self.writes):
            expect(self.store.register_buffer(base, room), 0, "register_buffer")
        ctypes.memset(self.reads, 0, room)
        self.written = None

    def key(self, identifier):
        return f"{self.namespace}@id:{identifier}"

    def places(self, base, ids, rows, cols):
        size = HEADER.size + rows * cols * 2
        return [base + i * size for i in range(len(ids))], [size] * len(ids)

    def hit(self, ids, rows, cols):
        keys = [self.key(i) for i in ids]
        places, sizes = self.places(self.reads, ids, rows, cols)
        us, (states, got) = timed(lambda: (self.store.batch_is_exist(keys), self.store.batch_get_into(keys, places, sizes)))
        expect(states, [1] * len(ids), "batch_is_exist")
        expect(got, sizes, "batch_get_into")
        self.read = [(place + HEADER.size, rows * cols * 2) for place in places]
        return us

    def get(self, ids, rows, cols):
        keys = [self.key(i) for i in ids]
        places, sizes = self.places(self.reads, ids, rows, cols)
        us, got = timed(lambda: self.store.batch_get_into(keys, places, sizes))
        expect(got, sizes, "batch_get_into")
        self.read = [(place + HEADER.size, rows * cols * 2) for place in places]
        return us

    def sums(self):
        return [hashlib.sha256(ctypes.string_at(at, n)).hexdigest() for at, n in self.read]

    def put(self, ids, rows, cols):
        keys = [self.key(i) for i in ids]
        places, sizes = self.places(self.writes, ids, rows, cols)
        if self.written != sizes:
            for i, place in enumerate(places):
                ctypes.memmove(place, HEADER.pack(MAGIC, BFLOAT16, rows, cols) + payload(i, rows * cols * 2), sizes[i])
            self.written = sizes
        us, got = timed(lambda: self.store.batch_put_from(keys, places, sizes))
        expect(got, [0] * len(ids), "batch_put_from")
        return us

    def drop(self, ids):
        for i in ids:
            expect(self.store.remove(self.key(i), True), 0, "remove")


class VLLM:
    """vLLM's resolver and Store client."""

    def __init__(self, master, namespace):
        import torch

        from vllm.distributed.ec_transfer.ec_connector.mooncake_store_embedding import backend, data, store_client

        torch.set_num_threads(1)  # as vLLM's workers do
        self.torch, self.data = torch, data
        self.client = store_client.create_mooncake_embedding_store_client()
        self.resolver = backend.MooncakeEmbeddingStoreBackend(
            self.client, namespace, max_pending_items=32, max_pending_bytes=2 << 30
        )
        self.tensors = []

    def key(self, identifier):
        return self.data.make_embedding_key(self.resolver.namespace, identifier)

    def hit(self, ids, rows, cols):
        spec = self.data.TensorSpec((rows, cols), "torch.bfloat16", rows * cols * 2)
        want, self.got = dict.fromkeys(ids, spec), {}
        us, found = timed(lambda: self.resolver.resolve_inputs(want, self.got, "cpu"))
        expect(len(found), len(ids), "resolve_inputs")
        self.got = [self.got[i] for i in ids]
        return us

    def miss(self, ids, rows, cols):
        spec = self.data.TensorSpec((rows, cols), "torch.bfloat16", rows * cols * 2)
        want = dict.fromkeys(ids, spec)
        us, found = timed(lambda: self.resolver.resolve_inputs(want, {}, "cpu"))
        expect(len(found), 0, "resolve_inputs")
        return us

    def sums(self):
        torch = self.torch
        return [hashlib.sha256(t.view(torch.uint8).numpy().data).hexdigest() for t in self.got]

    def put(self, ids, rows, cols):
        torch = self.torch
        if [tuple(t.shape) for t in self.tensors] != [(rows, cols)] * len(ids):
            self.tensors = [
                torch.frombuffer(bytearray(payload(i, rows * cols * 2)), dtype=torch.bfloat16).view(rows, cols)
                for i in range(len(ids))
            ]
        keys = [self.key(i) for i in ids]

        def puts():
            for key, tensor in zip(keys, self.tensors):
                self.client.put_tensor(key, tensor)

        us, _ = timed(puts)
        return us

    def drop(self, ids):
        for i in ids:
            expect(self.client.store.remove(self.key(i), True), 0, "remove")


def leave(*_):
    os._exit(0)  # without Mooncake's destructors, which may wait for servers that are being stopped


def main():
    signal.signal(signal.SIGINT, leave)
    kind, path, master, node, namespace, room = sys.argv[1:]
    client = VLLM(master, namespace) if kind == "vllm" else Raw(kind, master, node, namespace, int(room))
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        lines = s.makefile("rw")
        for line in lines:
            ask = json.loads(line)
            answer = {}
            try:
                op = ask.pop("op")
                got = getattr(client, op)(**ask)
                if op == "sums":
                    answer["sums"] = got
                elif got is not None:
                    answer["us"] = got
            except Exception as err:  # whatever it is, the caller ends the run with it
                answer["error"] = f"{type(err).__name__}: {err}"
            print(json.dumps(answer), file=lines, flush=True)
    leave()


if __name__ == "__main__":
    main()
