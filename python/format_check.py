#!/usr/bin/env python3
"""A second reader of the format, written from SPEC.md alone: opens the golden data set and every vector of testdata/spec.

Usage: python3 python/format_check.py [testdata/spec]

Needs Python 3.9 and the `zstd` command. Prints what disagrees with the expectations, exits 1 if anything does.
"""

import base64
import hashlib
import io
import json
import pathlib
import struct
import subprocess
import sys
import tarfile


class Corrupt(Exception):
    """The bytes are not what a writer put there."""


class Version(Exception):
    """A newer format, or a critical part that is unknown."""


def need(ok, why):
    if not ok:
        raise Corrupt(why)


def make_crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CRC_TABLE = make_crc_table()


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = CRC_TABLE[(c ^ b) & 0xFF] ^ c >> 8
    return c ^ 0xFFFFFFFF


def unzstd(data):
    done = subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=False)
    need(done.returncode == 0, "zstd: " + done.stderr.decode(errors="replace").strip())
    return done.stdout


class Fields:
    """Fixed fields from the front of bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        need(0 <= n <= len(self.data) - self.at, "cut")
        self.at += n
        return self.data[self.at - n : self.at]

    def u8(self):
        return self.take(1)[0]

    def u16(self):
        return struct.unpack("<H", self.take(2))[0]

    def u32(self):
        return struct.unpack("<I", self.take(4))[0]

    def u64(self):
        return struct.unpack("<Q", self.take(8))[0]

    def text(self):
        return self.take(self.u32())

    def rest(self):
        return self.take(len(self.data) - self.at)

    def planes(self, n):
        mask = self.u8()
        out = [0] * n
        for p in range(8):
            if mask >> p & 1:
                for i, c in enumerate(self.take(n)):
                    out[i] |= c << 8 * p
        return out

    def strings(self, n):
        shared, more = self.planes(n), self.planes(n)
        out, last = [], b""
        for s, m in zip(shared, more):
            need(s <= len(last), "string shares too much")
            last = last[:s] + self.take(m)
            out.append(last)
        return out

    def end(self):
        need(self.at == len(self.data), "bytes left over")


class Sections:
    """A directory and the sections it names (4.1)."""

    def __init__(self, data, magic, known, origin=0, payload=None):
        f = Fields(data)
        need(f.take(8) == magic, "magic")
        major, _minor, n = f.u16(), f.u16(), f.u32()
        if major != 1:
            raise Version("major %d" % major)
        need(n * 32 + 4 <= len(data) - f.at, "directory is cut")
        self.rows, self.by = [], {}
        for _ in range(n):
            kind, flags, codec, encoding, zero = f.take(4).decode("latin-1"), f.u8(), f.u8(), f.u8(), f.u8()
            row = (kind, codec, encoding, f.u32(), f.u64(), f.u32(), f.u32(), f.u32(), flags, zero)
            self.rows.append(row)
        self.length = f.at + 4
        need(f.u32() == crc32c(data[: self.length - 4]), "directory checksum")
        for row in self.rows:
            kind, codec, encoding, part, _off, stored, raw, _crc, flags, zero = row
            if kind not in known:
                if flags & 1:
                    raise Version("section " + kind)
                continue
            need(flags < 2 and zero == 0 and (kind, part) not in self.by, "section " + kind)
            if codec > 1 or encoding > 1:
                raise Version("section %s codec" % kind)
            need(raw <= 32768 * stored, "section expands too far")
            self.by[kind, part] = row
        self.data, self.origin, self.payload = data, origin, payload

    def get(self, kind, part=0):
        row = self.by.get((kind, part))
        if row is None:
            return None
        _, codec, _, _, off, stored, raw, crc, _, _ = row
        data = self.payload(off, stored)
        need(len(data) == stored and crc32c(data) == crc, "checksum of " + kind)
        if codec == 1:
            data = unzstd(data)
        need(len(data) == raw, "length of " + kind)
        return data

    def want(self, kind, part=0):
        data = self.get(kind, part)
        need(data is not None, "no section " + kind)
        return data

    def column(self, kind, n, part=0):
        data = self.want(kind, part)
        f = Fields(data)
        if self.by[kind, part][2] == 0:
            out = f.planes(n)
        else:
            values = [0] * (f.u8() + 1)
            for i in range(len(values)):
                values[i] = f.u64()
            need(values == sorted(set(values)), "dictionary")
            index = f.take(n)
            need(not index or max(index) < len(values), "dictionary index")
            out = [values[i] for i in index]
        f.end()
        return out

    def contiguous(self, begin, end):
        for row in self.rows:
            if begin <= row[4] < end or (row[5] == 0 and row[4] == begin):
                need(row[4] == begin, "gap before " + row[0])
                begin += row[5]
        need(begin == end, "sections end elsewhere")


SHARD = {"SCHM", "BSTO", "BDEC", "BSMP", "BCDC", "BCRC", "META", "SIZE", "SHAP", "GAPS", "KEYS", "ATTR", "ATTL", "ATTN"}
TABLES = {"HEAD", "SCHM", "FLDS", "PART", "META", "NAME", "OSIZ", "TLEN", "SSMP", "SBLK", "SROW", "HASH", "KRNG"} | {
    "BSTO", "BDEC", "BSMP", "BCDC", "BCRC"}


def split_name(name):
    at = name.find(b".", name.rfind(b"/") + 1)
    return (name, b"") if at < 0 else (name[:at], name[at + 1 :])


def schema(data):
    f = Fields(data)
    fields = [f.text() for _ in range(f.u32())]
    need(fields == sorted(set(fields)), "fields")
    shapes = [[f.u32() for _ in range(f.u32())] for _ in range(f.u32())]
    attrs = [(f.text(), f.u8()) for _ in range(f.u32())]
    f.end()
    return fields, shapes, attrs


def rows_of(sections, part=0):
    crc = sections.want("BCRC", part)
    need(len(crc) % 4 == 0, "BCRC")
    n = len(crc) // 4
    cols = [sections.column(kind, n, part) for kind in ("BSTO", "BDEC", "BSMP", "BCDC")]
    return list(zip(*cols, struct.unpack("<%dI" % n, crc)))


class Tail:
    """The index at the end of an object (5)."""

    def __init__(self, obj):
        size = len(obj)
        need(size >= 9, "short")
        n, desc, magic = struct.unpack("<IBI", obj[-9:])
        need(magic == 0x8F92EAB1 and desc == 0, "no seek table")
        seek = 17 + 8 * n
        need(seek + 80 <= size, "seek table")
        loc_at = size - seek - 80
        loc = obj[loc_at + 8 : loc_at + 80]
        need(loc[:8] == b"SHRDLOC1" and crc32c(loc[:68]) == struct.unpack("<I", loc[68:])[0], "locator")
        f = Fields(loc[8:])
        major, _, flags = f.u16(), f.u16(), f.u32()
        if major != 1 or flags & 0xFFFE:
            raise Version("locator")
        self.base, self.data_size, hot_off, hot_len, self.data_len, self.samples = (f.u64() for _ in range(6))
        hot_crc = f.u32()
        need(self.base in (0, self.data_size), "index_base")
        need(hot_off - self.base + hot_len == loc_at and hot_off >= self.data_size + 16 and self.data_len <= self.data_size, "offsets")
        hot = obj[hot_off - self.base : loc_at]
        need(crc32c(hot) == hot_crc, "HOT checksum")

        def payload(off, n):
            return obj[off - self.base : off - self.base + n]

        self.sections = Sections(hot, b"SHRDTOC1", SHARD, payload=payload)
        body = hot_off + self.sections.length
        self.sections.contiguous(self.data_size + 8, hot_off - 8)
        self.sections.contiguous(body, hot_off + hot_len)
        self.fields, self.shapes, self.attrs = schema(self.sections.want("SCHM"))
        self.rows = rows_of(self.sections)
        self.plain = self.base != 0
        need(sum(r[0] for r in self.rows) == self.data_len and sum(r[2] for r in self.rows) == self.samples, "rows")
        for i, (stored, decoded, samples, codec, _) in enumerate(self.rows):
            if codec > 2:
                raise Version("codec")
            need((codec == 0) == self.plain and 0 < stored and 0 < decoded <= 16 << 20 and (samples or i), "row")
        frames = [(r[0], r[1]) for r in self.rows]
        frames += [(1024 if self.plain else 15, 1024), (hot_off - 8 - self.data_size, 0), (8 + hot_len, 0), (80, 0)]
        table = b"".join(struct.pack("<II", *p) for p in frames) + struct.pack("<IBI", len(frames), 0, 0x8F92EAB1)
        need(obj[-seek:] == struct.pack("<II", 0x184D2A5E, len(table)) + table, "seek table")
        cold = self.data_size - self.base
        for at, n in ((cold, hot_off - self.data_size - 16), (hot_off - self.base - 8, hot_len), (loc_at, 72)):
            need(obj[at : at + 8] == struct.pack("<II", 0x184D2A5B, n), "skippable frame")

    def index(self):
        """Keys, and for each sample its fields' names and sizes."""
        f = Fields(self.sections.want("KEYS"))
        keys = f.strings(self.samples)
        f.end()
        shapes = [0] * self.samples
        if ("SHAP", 0) in self.sections.by:
            shapes = self.sections.column("SHAP", self.samples)
        per = [0] * len(self.fields)
        for s in shapes:
            need(s < len(self.shapes), "shape")
            for field in self.shapes[s]:
                per[field] += 1
        sizes = [iter(self.sections.column("SIZE", n, i)) for i, n in enumerate(per)]
        members = [[(self.fields[field], next(sizes[field])) for field in self.shapes[s]] for s in shapes]
        if ("GAPS", 0) in self.sections.by:
            self.sections.column("GAPS", sum(per))
        return keys, members, self.attributes()

    def attributes(self):
        out = [{} for _ in range(self.samples)]
        for i, (name, kind) in enumerate(self.attrs):
            values = self.sections.column("ATTR", self.samples, i)
            absent = self.sections.get("ATTN", i)
            if kind == 0:
                f = Fields(self.sections.want("ATTL", i))
                labels = f.strings(f.u32())
            for s, v in enumerate(values):
                if absent is not None and absent[s // 8] >> s % 8 & 1:
                    continue
                if kind == 0:
                    v = labels[v].decode()
                elif kind == 1:
                    v = str(v >> 1 ^ -(v & 1))
                else:
                    v = struct.unpack("<d", struct.pack("<Q", v))[0]
                out[s][name.decode()] = v
        return out


def read_shard(tail, data):
    """All samples of a shard, checked; and its hash."""
    keys, members, attrs = tail.index()
    need(len(data) == tail.data_size, "length of the data")
    at, blocks, archive = 0, [], b""
    for stored, decoded, samples, codec, crc in tail.rows:
        frame = data[at : at + stored]
        need(crc32c(frame) == crc, "frame checksum")
        frame = frame if codec == 0 else unzstd(frame)
        need(len(frame) == decoded, "frame length")
        if samples:
            blocks.append(b"")
        blocks[-1] += frame
        at += stored
    end = data[tail.data_len :]
    need((end if tail.plain else unzstd(end)) == bytes(1024) and len(end) == (1024 if tail.plain else 15), "end of archive")
    if not tail.plain:
        need(end[:11] == bytes.fromhex("28b52ffd6400030320" + "0000"), "end of archive frame")
    archive = b"".join(blocks) + bytes(1024)
    out = []
    with tarfile.open(fileobj=io.BytesIO(archive), encoding="utf-8", errors="surrogateescape") as tar:
        files = [(m.name.encode("utf-8", "surrogateescape"), tar.extractfile(m).read()) for m in tar]
    for name, payload in files:
        key, field = split_name(name)
        if not out or out[-1][0] != key:
            out.append((key, {}, attrs[len(out)] if len(out) < len(attrs) else {}))
        out[-1][1][field] = payload
    need([s[0] for s in out] == keys, "keys")
    for (_, fields, _), want in zip(out, members):
        need([(n, len(v)) for n, v in sorted(fields.items())] == want, "sizes")
    digest = hashlib.sha256(b"".join(hashlib.sha256(b).digest() for b in blocks)).digest()
    return out, digest


def read_tables(data):
    t = Sections(data, b"SHRDMAN1", TABLES, payload=lambda off, n: data[off : off + n])
    t.contiguous(t.length, len(data))
    f = Fields(t.want("HEAD"))
    head = (f.u64(), f.text(), f.take(32), f.take(32))
    f.end()
    fields, _, _ = schema(t.want("SCHM"))
    f = Fields(t.want("FLDS"))
    totals = list(zip(fields, *[f.planes(len(fields)) for _ in range(4)]))
    f.end()
    f = Fields(t.want("PART"))
    n = f.u32()
    parts = list(zip(*[f.planes(n) for _ in range(6)]))
    f.end()
    shards = []
    for p, part in enumerate(parts):
        count = part[0]
        f = Fields(t.want("NAME", p))
        names = f.strings(count)
        f.end()
        cols = [t.column(k, count, p) for k in ("OSIZ", "TLEN", "SSMP", "SBLK", "SROW")]
        hashes, rows = t.want("HASH", p), rows_of(t, p)
        need(len(rows) == part[1] == sum(cols[4]) and sum(cols[2]) == part[3], "part")
        for i in range(count):
            own, rows = rows[: cols[4][i]], rows[cols[4][i] :]
            need(sum(r[2] for r in own) == cols[2][i], "samples of a shard")
            shards.append((names[i].decode(), cols[0][i], cols[1][i], own, hashes[32 * i : 32 * i + 32]))
    h = hashlib.sha256(b"shardtool-content-1\n" + struct.pack("<Q", len(shards)))
    for _, _, _, own, digest in shards:
        blocks = [r[2] for r in own if r[2]]
        h.update(struct.pack("<QQ", sum(blocks), len(blocks)) + struct.pack("<%dI" % len(blocks), *blocks) + digest)
    need(h.digest() == head[2], "digest")
    return head, totals, shards


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
    need(head == b"SHRDKEY1" + struct.pack("<HHIQI", 1, 0, width, entries, 1024) and f.u32() == crc32c(head), "header")
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
        got = "ok"
    except Corrupt as e:
        got, v["why"] = "corrupt", str(e)
    except Version as e:
        got, v["why"] = "version", str(e)
    return got, v


def main():
    spec = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "testdata/spec")
    bad = 0
    samples = check_golden(spec / "golden-v1")
    files = sorted((spec / "vectors").glob("*.txt"))
    for file in files:
        got, v = check_vector(file.read_text())
        if got != v["expect"]:
            bad += 1
            print("%s: %s (%s), expected %s: %s" % (file.name, got, v.get("why"), v["expect"], v["note"]))
    print("%d samples of golden-v1, %d vectors, %d differ" % (samples, len(files), bad))
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
