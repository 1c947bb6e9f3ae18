"""Tables, manifest.json, keys tables and views (SPEC 6, 8 and 10), by a second reader of the format."""

import hashlib
import json
import struct

from format_sections import Corrupt, Fields, Sections, Version, crc32c, need
from format_shards import check_rows, check_shard_name, layout, ranges, rows_of, schema

TABLES = {"HEAD", "SCHM", "FLDS", "PART", "META", "NAME", "OSIZ", "TLEN", "SSMP", "SBLK", "SROW", "HASH", "KRNG", "SIDE"} | {
    "BSTO", "BDEC", "BSMP", "BCDC", "BCRC", "IHSH", "ATOT", "RMVD", "PRGD", "LAYT", "KNUM", "BASE"}


def attribute_totals(data, attrs, samples):
    if data is None:
        return
    f, last = Fields(data), -1
    for _ in range(f.u32()):
        at, count = f.u32(), f.u64()
        low, high = struct.unpack("<Qq", f.take(16))
        least, most = struct.unpack("<qq", f.take(16))
        negative = f.u64()
        counts = [f.u64() for _ in range(f.u8())]
        need(last < at < len(attrs) and attrs[at][1] == 1 and len(counts) <= 64, "total of an attribute")
        need(negative + sum(counts) == count <= samples, "counts of an attribute")
        need(least * count <= (high << 64) + low <= most * count and least <= most, "sum of an attribute")
        need(count or least == most == 0, "values of no samples")
        last = at
    f.end()


def read_tables(data):
    t = Sections(data, b"SHRDMAN1", TABLES, payload=lambda off, n: data[off : off + n])
    t.contiguous(t.length, len(data))
    f = Fields(t.want("HEAD"))
    head = (f.u64(), f.text(), f.take(32), f.take(32))
    f.end()
    need(head[0] >= 1 and (head[1] == b"") == (head[0] == 1), "parent")
    fields, _, attrs = schema(t.want("SCHM"))
    f = Fields(t.want("FLDS"))
    totals = list(zip(fields, *[f.planes(len(fields)) for _ in range(4)]))
    f.end()
    f = Fields(t.want("PART"))
    n = f.u32()
    parts = list(zip(*[f.planes(n) for _ in range(6)]))
    f.end()
    attribute_totals(t.get("ATOT"), attrs, sum(p[3] for p in parts))
    shards = []
    for p, part in enumerate(parts):
        count = part[0]
        f = Fields(t.want("NAME", p))
        names = f.strings(count)
        f.end()
        cols = [t.column(k, count, p) for k in ("OSIZ", "TLEN", "SSMP", "SBLK", "SROW")]
        hashes, rows = t.want("HASH", p), rows_of(t, p)
        need(len(rows) == part[1] == sum(cols[4]) and sum(cols[3]) == part[2] and sum(cols[2]) == part[3], "part")
        need(len(hashes) == 32 * count, "hashes")
        tags = t.get("SIDE", p)
        tags = bytes(8 * count) if tags is None else tags
        need(len(tags) == 8 * count, "tags of sidecars")
        need(("IHSH", p) not in t.by or len(t.want("IHSH", p)) == 64 * count, "hashes of indexes")
        need(("PRGD", p) not in t.by or len(t.want("PRGD", p)) == 32 * count, "hashes of purged shards")
        layouts, numbers = table_layouts(t, p, count), [None] * count
        if ("KNUM", p) in t.by:
            f = Fields(t.want("KNUM", p))
            numbers = [ranges(f, n) for n in cols[2]]
            f.end()
        f = Fields(t.want("KRNG", p))
        f.strings(2 * count)
        f.end()
        for i in range(count):
            own, rows = rows[: cols[4][i]], rows[cols[4][i] :]
            check_shard_name(names[i])
            plain = names[i].endswith(b".tar")
            need(plain or not any(tags[8 * i : 8 * i + 8]), "sidecar of a compressed shard")
            stored = sum(r[0] for r in own)
            need(cols[0][i] == stored + (1024 if plain else 15 + cols[1][i]), "size of a shard")
            need(sum(r[2] for r in own) == cols[2][i] and sum(1 for r in own if r[2]) == cols[3][i], "samples of a shard")
            check_rows(own, plain, layouts[i])
            shards.append((names[i].decode(), cols[0][i], cols[1][i], own, hashes[32 * i : 32 * i + 32]))
    h = hashlib.sha256(b"shardtool-content-1\n" + struct.pack("<Q", len(shards)))
    for _, _, _, own, digest in shards:
        blocks = [r[2] for r in own if r[2]]
        h.update(struct.pack("<QQ", sum(blocks), len(blocks)) + struct.pack("<%dI" % len(blocks), *blocks) + digest)
    need(h.digest() == head[2], "digest")
    if ("RMVD", 0) in t.by:
        removed(t.want("RMVD"), sum(part[3] for part in parts))
    if ("BASE", 0) in t.by:
        base(t.want("BASE"), len(shards), sum(part[3] for part in parts))
    return head, totals, shards


def table_layouts(t, part, count):
    """The layouts of the shards of a part (11.4): None for an ordinary one."""
    if ("LAYT", part) not in t.by:
        return [None] * count
    f = Fields(t.want("LAYT", part))
    known = [None] + [layout(f) for _ in range(f.u32())]
    places = [f.u32() for _ in range(count)]
    f.end()
    need(all(p < len(known) for p in places), "place of a layout")
    return [known[p] for p in places]


def removed(data, samples):
    """The numbers of the removed samples, and of those that were purged."""
    f, lists = Fields(data), []
    for _ in range(2):
        n = f.u64()
        need(n < len(data), "removed samples")
        gaps = f.planes(n)
        need(all(gaps), "a removed sample twice")
        lists.append([sum(gaps[: i + 1]) - 1 for i in range(n)])
    f.end()
    need(lists[0] and lists[0][-1] < samples and set(lists[1]) <= set(lists[0]), "removed samples")
    return lists


def base(data, shards, samples):
    """The base of a layer of so many shards and samples (12): digest, shards, samples, and the names that it replaces."""
    f = Fields(data)
    digest, most, of, n = f.take(32), f.u32(), f.u64(), f.u32()
    need(n < len(data), "names replaced")
    names = f.strings(n)
    f.end()
    need(shards <= most and samples <= of, "shards and samples of the base")
    need(all(names) and names == sorted(set(names)) and sum(map(len, names)) <= 2**20, "names replaced")
    return digest, most, of, names


def read_summary(data):
    try:
        s = json.loads(data)
    except ValueError as e:
        raise Corrupt(str(e)) from e
    if s.get("format") != "shardtool/1":
        raise (Version if str(s.get("format")).startswith("shardtool/") else Corrupt)("format")
    name = s["tables"]
    need(len(name) == 29 and name.startswith("manifest-") and name.endswith(".bin") and set(name[9:25]) <= set("0123456789abcdef"), "tables")
    need(s["digest"].startswith("sha256:") and len(s["digest"]) == 71, "digest")
    return s


def read_keys(data, entries):
    width = max(1, ((entries - 1).bit_length() + 7) // 8)
    f = Fields(data)
    head = f.take(28)
    need(head[:8] == b"SHRDKEY1" and f.u32() == crc32c(head), "header")
    if head[8:10] != b"\1\0":
        raise Version("keys table")
    need(head[12:] == struct.pack("<IQI", width, entries, 1024), "geometry")
    out = []
    while len(out) < entries:
        n = min(1024, entries - len(out))
        group = f.take(n * (8 + width))
        need(f.u32() == crc32c(group), "group checksum")
        for i in range(n):
            e = group[i * (8 + width) :][: 8 + width]
            out.append((int.from_bytes(e[:8], "big"), int.from_bytes(e[8:], "little")))
    f.end()
    need(out == sorted(set(out)) and all(num < entries for _, num in out), "order")
    return out


def read_view(data):
    """Returns the identity, the digest of the data set, the draws, and the bits, weights or classes (10)."""
    t = Sections(data, b"SHRDVIW1", {"VHED", "VBIT", "VCLS", "VWGT"}, payload=lambda off, n: data[off : off + n])
    t.contiguous(t.length, len(data))
    need(bool(t.rows) and t.rows[0][0] == "VHED" and t.rows[0][3] == 0, "no VHED at the beginning")
    head = t.want("VHED")
    f = Fields(head)
    digest, samples, draws = f.take(32), f.u64(), f.u64()
    classes = f.u64() if len(head) > 48 else 0
    f.end()
    need(len(head) == 48 or 0 < classes <= samples and draws > 0, "number of classes")
    of = -(-classes // 2**20)
    need([row[3] for row in t.rows if row[0] == "VCLS"] == list(range(of)), "parts of classes")
    need(all(row[0] == "VCLS" for row in t.rows[1 : 1 + of]), "classes after samples")
    kind, size = ("VWGT", 2**20) if draws else ("VBIT", 2**23)
    parts = -(-samples // size)
    need([row[3] for row in t.rows if row[0] == kind] == list(range(parts)), "parts")
    need(len(t.by) == parts + of + 1, "sections of another kind")
    if not draws:
        content = b"".join(t.want(kind, p) for p in range(parts))
        need(len(content) == -(-samples // 8), "bits")
        need(samples % 8 == 0 or content[-1] >> samples % 8 == 0, "bits after those of the samples")
        return hashlib.sha256(b"shardtool-view-1\n" + head + content).digest(), digest, draws, content
    weights = []
    for p in range(parts):
        weights += t.column(kind, min(size, samples - p * size), p)
    need(max(weights, default=0) < 2**32 and draws < 2**63, "weights or draws")
    content = struct.pack("<%dI" % samples, *weights)
    if not classes:
        return hashlib.sha256(b"shardtool-view-1\n" + head + content).digest(), digest, draws, weights
    by_class = []
    for p in range(of):
        by_class += t.column("VCLS", min(2**20, classes - p * 2**20), p)
    need(min(by_class) > 0 and sum(by_class) < 2**63, "weights of classes")
    first = list(dict.fromkeys(k for k in weights if k))
    need(first == list(range(1, classes + 1)), "classes by their first samples")
    content = struct.pack("<%dQ" % classes, *by_class) + content
    return hashlib.sha256(b"shardtool-view-2\n" + head + content).digest(), digest, draws, weights
