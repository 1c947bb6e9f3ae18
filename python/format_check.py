#!/usr/bin/env python3
"""A second reader of the format, written from SPEC.md alone: opens the golden data set and every vector of testdata/spec.

Usage: python3 python/format_check.py [testdata/spec]

Needs Python 3.9 and the `zstd` command. Prints what disagrees with the expectations, exits 1 if anything does.
"""

import base64
import hashlib
import json
import pathlib
import sys

from format_sections import Corrupt, Version, need
from format_shards import Tail, read_shard
from format_tables import read_keys, read_summary, read_tables, read_view


def check_golden(folder):
    text = (folder / "manifest.json").read_bytes()
    s = read_summary(text)
    data = (folder / s["tables"]).read_bytes()
    need(s["tables"] == "manifest-%s.bin" % hashlib.sha256(data).hexdigest()[:16], "name of the tables")
    head, totals, shards = read_tables(data)
    need("sha256:" + head[2].hex() == s["digest"], "digest of manifest.json")
    got, keys = [], []
    for name, size, tail_len, rows, digest in shards:
        data = (folder / name).read_bytes()
        need(len(data) == size, "size of " + name)
        if name.endswith(".tar"):
            index = (folder / (name + ".shidx")).read_bytes()
            need(len(index) == tail_len, "size of the sidecar")
            tail = Tail(index)
        else:
            tail = Tail(data)
            data = data[: tail.data_size]
            need(size - tail.data_size == tail_len, "tail length")
        need(tail.rows == rows, "rows of " + name)
        samples, found = read_shard(tail, data)
        need(found == digest, "hash of " + name)
        for key, fields, attrs in samples:
            keys.append((int.from_bytes(hashlib.sha256(key).digest()[:8], "big"), len(keys)))
            entry = {"key": key.hex(), "fields": {f.decode(): hashlib.sha256(v).hexdigest() for f, v in fields.items()}}
            if attrs:
                entry["attributes"] = attrs
            got.append(entry)
    need(got == json.loads((folder / "expect.json").read_bytes()), "samples differ from expect.json")
    if any(head[3]):
        table = (folder / ("keys-%s.bin" % head[3].hex()[:16])).read_bytes()
        need(hashlib.sha256(table).digest() == head[3] and read_keys(table, len(keys)) == sorted(keys), "keys table")
    need(sum(t[2] for t in totals) == s["payload_bytes"] and len(got) == s["samples"], "totals")
    return len(got)


def check_vector(text):
    head, _, body = text.partition("\n\n")
    v = dict(line.split(": ", 1) for line in head.split("\n"))
    data, extra = base64.b64decode(body), int(v.get("value", 0))
    try:
        if v["kind"] == "shard":
            tail = Tail(data)
            need(not tail.plain, "a sidecar")
            read_shard(tail, data[: tail.data_size])
        elif v["kind"] == "sidecar":
            tail = Tail(data)
            need(tail.plain and tail.data_size == extra, "of another tar")
            tail.index()
        elif v["kind"] == "tables":
            read_tables(data)
        elif v["kind"] == "keys":
            read_keys(data, extra)
        elif v["kind"] == "summary":
            read_summary(data)
        elif v["kind"] == "view":
            need(int(read_view(data)[0].hex()[:7], 16) == extra, "identity of the view")
        got = "ok"
    except Corrupt as e:
        got, v["why"] = "corrupt", str(e)
    except Version as e:
        got, v["why"] = "version", str(e)
    return got, v


def main():
    spec = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "testdata/spec")
    bad = 0
    samples = check_golden(spec / "golden-v1") + check_golden(spec / "golden-v1.1") + check_golden(spec / "golden-layer")
    files = sorted((spec / "vectors").glob("*.txt"))
    for file in files:
        got, v = check_vector(file.read_text())
        if got != v["expect"]:
            bad += 1
            print("%s: %s (%s), expected %s: %s" % (file.name, got, v.get("why"), v["expect"], v["note"]))
    print("%d samples of golden data, %d vectors, %d differ" % (samples, len(files), bad))
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
