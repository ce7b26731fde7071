# SPDX-License-Identifier: Apache-2.0
"""vLLM's side of `afterimage bench relay`.

usage: relaypeer.py consumer PORT BYTES [PORTS]
       relaypeer.py push SOCKET CONTROL BYTES

consumer is the part of a vLLM prefill worker that takes embeddings: its control server, reservation manager, memory
pool and Transfer Engine, without an engine. It prints "ready" when it takes calls. PORTS are the control ports of all
tensor-parallel ranks, of which this is one, with commas between; without, it is the only one.

push is the part of a vLLM Encoder that delivers them: its control client, the copy into its registered memory, and its
Transfer Engine, one after the other in one thread. It connects to SOCKET and answers one JSON object a line with the
time of a delivery, taken here. BYTES bound one embedding.
"""

import json
import os
import socket
import sys
import time
import uuid

COLS = 1024
HOST = "127.0.0.1"


def consumer(port, size, ports):
    import threading

    import torch
    from vllm.distributed.ec_transfer.ec_connector.mooncake.control import ConsumerControlServer
    from vllm.distributed.ec_transfer.ec_connector.mooncake.memory import ConsumerMemoryPool
    from vllm.distributed.ec_transfer.ec_connector.mooncake.reservation import ConsumerReservationManager
    from vllm.distributed.ec_transfer.ec_connector.mooncake.transfer import MooncakeTransfer
    from vllm.distributed.ec_transfer.ec_connector.mooncake.worker import ECMooncakeWorker

    worker = ECMooncakeWorker.__new__(ECMooncakeWorker)  # its code for reservations, without a connector's set-up
    worker._transfer = MooncakeTransfer(HOST, "tcp")
    worker._consumer_memory = ConsumerMemoryPool(size, worker._transfer)
    worker._reservations = ConsumerReservationManager(worker._consumer_memory, 300, 65536)
    worker._consumer_memory.prepare(torch.device("cpu"))
    worker._consumer_memory.tensor.fill_(0)
    held = worker._reservations
    server = ConsumerControlServer(
        HOST, port, worker._reserve_push_destination, worker._push_status, held.complete, held.cancel, held.expire,
        peer_ports=ports, device=torch.device("cpu"), drain_ready=held.drain_ready,
    )
    server.start()
    print("ready", flush=True)
    threading.Event().wait()


def push(path, control, size):
    import torch
    from vllm.distributed.ec_transfer.ec_connector.mooncake.control import ControlClient, make_cancel_request
    from vllm.distributed.ec_transfer.ec_connector.mooncake.transfer import MooncakeTransfer

    client, transfer = ControlClient(5000), MooncakeTransfer(HOST, "tcp")
    slab = torch.zeros(size, dtype=torch.uint8)
    if transfer.register_memory(slab) != 0:
        raise RuntimeError("register_memory")

    def deliver(rows):
        n = rows * COLS * 2
        source = slab[:n].view(torch.bfloat16).clone()
        name = uuid.uuid4().hex
        start = time.perf_counter_ns()
        held = client.request(
            control, {"op": "reserve", "transfer_id": name, "mm_hash": name, "nbytes": n, "shape": [rows, COLS], "dtype": "bfloat16"}
        )
        slab[:n].view(torch.bfloat16).copy_(source)
        transfer.write(held["dst_session"], [slab.data_ptr()], [held["dst_ptr"]], [n])
        done = client.request(control, {"op": "complete", "transfer_id": name, "reservation_id": held["reservation_id"]})
        us = (time.perf_counter_ns() - start) / 1e3
        if done != {"completed": True, "became_ready": True}:
            raise RuntimeError(f"complete: {done}")
        client.request(control, make_cancel_request(name, held["reservation_id"], abandon=True))
        return us

    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        lines = s.makefile("rw")
        for line in lines:
            try:
                answer = {"us": deliver(json.loads(line)["rows"])}
            except Exception as err:  # whatever it is, the caller ends the run with it
                answer = {"error": f"{type(err).__name__}: {err}"}
            print(json.dumps(answer), file=lines, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "consumer":
        ports = sys.argv[4] if len(sys.argv) > 4 else sys.argv[2]
        consumer(int(sys.argv[2]), int(sys.argv[3]), [int(p) for p in ports.split(",")])
    else:
        push(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    os._exit(0)  # without the destructors of native code
