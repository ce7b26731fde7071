# SPDX-License-Identifier: Apache-2.0
"""Writes identifiers.json and objects_a1.json next to this file.

A second implementation of identifiers and a1 objects, kept apart from the Go code on purpose: the Go
tests must reproduce its bytes. Needs `pip install blake3 xxhash`; the tests do not run it.
"""

import json
import pathlib
import struct

import blake3
import xxhash

HERE = pathlib.Path(__file__).parent
DTYPES = {"float32": (0, 4), "float16": (11, 2), "bfloat16": (12, 2)}  # code, bytes
WHITE = [255, 255, 255]


def b3(data):
    return blake3.blake3(data).digest()


def xxh(data):
    return xxhash.xxh3_64_intdigest(data)


def field(tag, value):
    return struct.pack("<BI", tag, len(value)) + value


def identifier(file, processing, alpha, salt):
    b = field(1, b"afterimage/identifier/1") + field(2, b3(file))
    if alpha:
        b += field(3, bytes(processing["background"]))
    if processing.get("ignore_orientation"):
        b += field(4, b"\x01")
    for tag, name in ((5, "square"), (6, "min_pixels"), (7, "max_pixels")):
        if processing.get(name):
            b += field(tag, struct.pack("<Q", processing[name]))
    if salt:
        b += field(8, salt)
    return b3(b).hex()


def section(parts):
    b = struct.pack("<I", len(parts))
    for p in parts:
        if "tokens" in p:
            b += struct.pack("<BBHII", 1, 0, 0, len(p["tokens"]), 0)
            b += b"".join(struct.pack("<i", t) for t in p["tokens"])
            continue
        mrope = p.get("mrope", [])
        flags = (1 if p.get("non_causal") else 0) | (2 if mrope else 0)
        b += struct.pack("<BBHII", 2, flags, 0, p["rows"], p.get("positions", 0))
        b += b"".join(struct.pack("<4I", *(m[k] for k in "TYXZ")) for m in mrope)
    return b + bytes(-len(b) % 64)


def a1(key, parts, rows, cols, dtype):
    code, size = DTYPES[dtype]
    payload = bytes(i & 255 for i in range(rows * cols * size))
    layout = section(parts)
    head = b"AFI1" + struct.pack(
        "<HHIIQQQQQ", 1, 0, code, len(layout), rows, cols, len(payload), xxh(payload), xxh(key.encode()))
    return head + struct.pack("<Q", xxh(head + layout)) + layout + payload


def identifiers():
    out = []

    def add(name, processing, alpha=False, salt="", file="afterimage"):
        out.append({
            "name": name, "file": file, "processing": processing, "has_alpha": alpha, "salt": salt,
            "digest": b3(file.encode()).hex(),
            "identifier": identifier(file.encode(), processing, alpha, salt.encode()),
        })

    add("empty file", {"background": WHITE}, file="")
    add("plain", {"background": WHITE})
    add("opaque on black is plain", {"background": [0, 0, 0]})
    add("alpha on white", {"background": WHITE}, alpha=True)
    add("alpha on black", {"background": [0, 0, 0]}, alpha=True)
    add("orientation ignored", {"background": WHITE, "ignore_orientation": True})
    add("square", {"background": WHITE, "square": 448})
    add("min pixels", {"background": WHITE, "min_pixels": 3136})
    add("max pixels", {"background": WHITE, "max_pixels": 3136})
    add("salt", {"background": WHITE}, salt="tenant-a")
    add("everything", {"background": [1, 2, 3], "ignore_orientation": True, "square": 224,
                       "min_pixels": 3136, "max_pixels": 12845056}, alpha=True, salt="salt")
    return out


def objects():
    out = []

    def add(name, identifier, parts, cols, dtype):
        key = f"embedding@model:m@revision:default@encoder:e@dtype:torch.{dtype}@protocol:a1@id:{identifier}"
        rows = sum(p.get("rows", 0) for p in parts)
        out.append({"name": name, "key": key, "dtype": dtype, "rows": rows, "cols": cols,
                    "layout": {"parts": parts}, "object": a1(key, parts, rows, cols, dtype).hex()})

    grid = [{"T": 0, "Y": y, "X": x, "Z": 0} for y in (0, 1) for x in (0, 1)]
    add("one row", "x", [{"rows": 1, "positions": 1}], 1, "float32")
    add("tokens round rows", "image@1",
        [{"tokens": [1, 2, 3]}, {"rows": 3, "positions": 3}, {"tokens": [2147483647]}], 5, "float16")
    add("two row parts, non-causal", "bild ä",
        [{"tokens": [5]}, {"rows": 2, "positions": 2, "non_causal": True},
         {"tokens": [6]}, {"rows": 1, "positions": 1, "non_causal": True}], 4, "bfloat16")
    add("m-rope", "y", [{"rows": 4, "positions": 2, "mrope": grid}], 2, "float32")
    add("section of exactly 64", "z", [{"tokens": list(range(9))}, {"rows": 1, "positions": 1}], 3, "float32")
    return out


for name, make in (("identifiers.json", identifiers), ("objects_a1.json", objects)):
    (HERE / name).write_text(json.dumps(make(), indent=1, ensure_ascii=False) + "\n")
