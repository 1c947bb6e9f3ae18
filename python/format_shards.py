"""Shards: their samples and their index (SPEC 2 to 5 and 11), by a second reader of the format."""

import hashlib
import struct

from format_sections import Corrupt, Fields, Sections, Version, crc32c, need, unzstd

SHARD = {"SCHM", "BSTO", "BDEC", "BSMP", "BCDC", "BCRC", "META", "SIZE", "SHAP", "GAPS", "KEYS", "ATTR", "ATTL", "ATTN", "LAYT", "KNUM"}

TYPES = {b"|b1": 1, b"|i1": 1, b"|u1": 1, b"<i2": 2, b"<u2": 2, b"<f2": 2, b"<i4": 4, b"<u4": 4, b"<f4": 4,
         b"<i8": 8, b"<u8": 8, b"<f8": 8, b"<c8": 8, b"<c16": 16}


def layout(f):
    """What a row is (11.1): (name, element type, shape, bytes) of each field."""
    if f.u32() != 1:
        raise Version("layout")
    fields = []
    for _ in range(f.u32()):
        name, dtype = f.text(), f.text()
        shape = tuple(f.u64() for _ in range(f.u8()))
        need(bool(name) and b"/" not in name and b"\0" not in name, "field of a row")
        need(dtype in TYPES and len(shape) < 64 and all(1 <= d <= 16 << 20 for d in shape), "array of a row")
        row = TYPES[dtype]
        for d in shape:
            row *= d
        fields.append((name, dtype.decode(), shape, row))
    arrays = {array_name(x[0]) for x in fields}
    need(len(arrays) == len(fields) and b"__key__.npy" not in arrays, "names of arrays")
    need(bool(fields) and [x[0] for x in fields] == sorted({x[0] for x in fields}), "fields of a layout")
    need(sum(len(member(0, x, 1)[0]) + x[3] + member(0, x, 1)[1] for x in fields) <= 16 << 20, "bytes of a row")
    return fields


def array_name(name):
    return name if name == b"npy" or name.endswith(b".npy") else name + b".npy"


def npy(dtype, shape):
    """All that precedes an array (11.2)."""
    text = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (dtype, repr(tuple(shape)))
    text += " " * (-(11 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode()


def member(first, field, n):
    """The bytes before the rows of a field in a block of n samples, and the length of the padding after them."""
    name, dtype, shape, row = field
    name, head = array_name(name), npy(dtype, (n, *shape))
    size = len(head) + n * row
    return header(b"%09d.%s" % (first, name), size) + head, -size % 512


def ranges(f, samples):
    """Numbered keys (11.3): none where there are 0 ranges."""
    out, left = [], samples
    for _ in range(f.u32()):
        prefix, first, digits, count = f.text(), f.u64(), f.u8(), f.u64()
        need(0 < count <= left and first < 1 << 63 and 1 <= digits <= 20 and len(prefix) <= 4076, "range of keys")
        check_key(prefix + b"0")
        left -= count
        out.append((prefix, first, digits, count))
    need(not out or left == 0, "numbered keys")
    return out


def numbered(rs):
    return [b"%s%0*d" % (prefix, digits, first + i) for prefix, first, digits, count in rs for i in range(count)]


def read_rows(block, fields, first, n, keys):
    """The samples of a block of rows: fields as NPY files. keys are those that are numbered, or None."""
    f, columns = Fields(block), []
    for field in fields:
        want, padding = member(first, field, n)
        need(f.take(len(want)) == want, "headers of a field of rows")
        rows, row = f.take(n * field[3]), field[3]
        columns.append((field[0], npy(field[1], field[2]), [rows[i * row : (i + 1) * row] for i in range(n)]))
        need(not any(f.take(padding)), "padding")
    if keys is None:
        at = block.find(b"'|S", f.at) + 3
        width = int(block[at : block.find(b"'", at)])
        want, padding = member(first, (b"__key__.npy", "|S%d" % width, (), width), n)
        need(0 < width <= 4096 and f.take(len(want)) == want, "headers of keys")
        text = f.take(n * width)
        keys = [text[i * width : (i + 1) * width].rstrip(b"\0") for i in range(n)]
        need(not any(f.take(padding)), "padding")
    f.end()
    return [(keys[i], {name: head + rows[i] for name, head, rows in columns}) for i in range(n)]


def check_key(key):
    parts = key.split(b"/")
    need(0 < len(key) <= 4096 and b"\0" not in key and not {b"", b".", b".."} & set(parts) and b"." not in parts[-1], "key")


def header(name, size, kind=b"0"):
    """The bytes before a payload (2.2)."""
    prefix, front = b"", b""
    if len(name) > 100:
        cut = name.find(b"/", len(name) - 101)
        if 0 < cut <= 155:
            prefix, name = name[:cut], name[cut + 1 :]
        else:
            front = header(b"././@LongLink", len(name) + 1, b"L") + pad(name + b"\0")
            name = name[:100]
    h = bytearray(512)
    length = b"%011o\0" % size if size < 8 << 30 else b"\x80\0\0\0" + struct.pack(">Q", size)
    for at, field in ((0, name), (100, b"0000444"), (108, b"0000000"), (116, b"0000000"), (124, length), (136, b"00000000000"),
                      (148, b" " * 8), (156, kind), (257, b"ustar\x0000"), (329, b"0000000"), (337, b"0000000"), (345, prefix)):
        h[at : at + len(field)] = field
    h[148:156] = b"%06o\0 " % sum(h)
    return front + bytes(h)


def pad(data):
    return data + bytes(-len(data) % 512)


def schema(data):
    f = Fields(data)
    fields = [f.text() for _ in range(f.u32())]
    need(fields == sorted(set(fields)) and not any(b"/" in x or b"\0" in x for x in fields), "fields")
    shapes = [[f.u32() for _ in range(f.u32())] for _ in range(f.u32())]
    need(all(x and x == sorted(set(x)) and x[-1] < len(fields) for x in shapes), "shapes")
    attrs = [(f.text(), f.u8()) for _ in range(f.u32())]
    f.end()
    names = [a[0] for a in attrs]
    if any(kind > 2 for _, kind in attrs):
        raise Version("kind of attribute")
    need(names == sorted(set(names)), "attributes")
    return fields, shapes, attrs


def rows_of(sections, part=0):
    crc = sections.want("BCRC", part)
    need(len(crc) % 4 == 0, "BCRC")
    n = len(crc) // 4
    cols = [sections.column(kind, n, part) for kind in ("BSTO", "BDEC", "BSMP", "BCDC")]
    return list(zip(*cols, struct.unpack("<%dI" % n, crc)))


def check_rows(rows, plain, fields=None):
    for i, (stored, decoded, samples, codec, _) in enumerate(rows):
        if codec > 2:
            raise Version("codec")
        need((codec == 0) == plain and 0 < stored <= 18 << 20 and 0 < decoded <= 16 << 20 and (samples or i), "row")
        need(fields is None or samples * sum(f[3] for f in fields) <= decoded and samples, "rows in a block")
        need(decoded <= 32768 * stored and (codec or stored == decoded) and (codec != 2 or stored > decoded), "lengths in a row")


def check_shard_name(name):
    bad = {b"", b".", b".."} & set(name.split(b"/")) or b"\\" in name or b"\0" in name or b"://" in name or len(name) > 1024
    need(not bad and name.endswith((b".tar", b".tar.zst")), "shard name")


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
        self.layout = self.numbered = None
        if ("LAYT", 0) in self.sections.by:
            f = Fields(self.sections.want("LAYT"))
            self.layout = layout(f)
            f.end()
            need([x[0] for x in self.layout] == self.fields and self.shapes == [list(range(len(self.fields)))], "fields of the layout")
            need(self.samples <= 1 << 24, "samples of a stacked shard")
        if ("KNUM", 0) in self.sections.by:
            f = Fields(self.sections.want("KNUM"))
            self.numbered = ranges(f, self.samples)
            f.end()
            need(bool(self.numbered), "KNUM is empty")
        self.plain = self.base != 0
        need(sum(r[0] for r in self.rows) == self.data_len and sum(r[2] for r in self.rows) == self.samples, "rows")
        check_rows(self.rows, self.plain, self.layout)
        need(self.data_size - self.data_len == (1024 if self.plain else 15) or flags & 1, "end of archive")
        frames = [(r[0], r[1]) for r in self.rows]
        frames += [(1024 if self.plain else 15, 1024), (hot_off - 8 - self.data_size, 0), (8 + hot_len, 0), (80, 0)]
        table = b"".join(struct.pack("<II", *p) for p in frames) + struct.pack("<IBI", len(frames), 0, 0x8F92EAB1)
        need(obj[-seek:] == struct.pack("<II", 0x184D2A5E, len(table)) + table, "seek table")
        cold = self.data_size - self.base
        for at, n in ((cold, hot_off - self.data_size - 16), (hot_off - self.base - 8, hot_len), (loc_at, 72)):
            need(obj[at : at + 8] == struct.pack("<II", 0x184D2A5B, n), "skippable frame")

    def index(self):
        """Keys, and for each sample its fields' names and sizes."""
        for kind, _, _, _, off, stored, _, crc, _, _ in self.sections.rows:
            need(crc32c(self.sections.payload(off, stored)) == crc, "checksum of " + kind)
        need((("KEYS", 0) in self.sections.by) != bool(self.numbered), "KEYS and KNUM")
        if self.numbered:
            keys = numbered(self.numbered)
        else:
            f = Fields(self.sections.want("KEYS"))
            keys = f.strings(self.samples)
            f.end()
        for key in keys:
            check_key(key)
        if self.layout:
            sizes = [(name, len(npy(dtype, shape)) + row) for name, dtype, shape, row in self.layout]
            return keys, [sizes] * self.samples, self.attributes()
        shapes = [0] * self.samples
        need(("SHAP", 0) in self.sections.by or len(self.shapes) < 2, "no SHAP")
        if ("SHAP", 0) in self.sections.by:
            shapes = self.sections.column("SHAP", self.samples)
        per = [0] * len(self.fields)
        for s in shapes:
            need(s < len(self.shapes), "shape")
            for field in self.shapes[s]:
                per[field] += 1
        sizes = [iter(self.sections.column("SIZE", n, i)) for i, n in enumerate(per)]
        members = [[(self.fields[field], next(sizes[field])) for field in self.shapes[s]] for s in shapes]
        gaps = [512] * sum(per)
        if ("GAPS", 0) in self.sections.by:
            gaps = self.sections.column("GAPS", sum(per))
        heads = [len(header(member_name(key, n), size)) for key, m in zip(keys, members) for n, size in m]
        need(gaps == heads, "gaps")
        return keys, members, self.attributes()

    def attributes(self):
        out = [{} for _ in range(self.samples)]
        for i, (name, kind) in enumerate(self.attrs):
            values = self.sections.column("ATTR", self.samples, i)
            absent = self.sections.get("ATTN", i)
            if kind == 0:
                f = Fields(self.sections.want("ATTL", i))
                labels = f.strings(f.u32())
                f.end()
            need(absent is None or len(absent) == (self.samples + 7) // 8, "ATTN")
            for s, v in enumerate(values):
                if absent is not None and absent[s // 8] >> s % 8 & 1:
                    continue
                if kind == 0:
                    need(v < len(labels), "label")
                    v = labels[v].decode()
                elif kind == 1:
                    v = str(v >> 1 ^ -(v & 1))
                else:
                    v = struct.unpack("<d", struct.pack("<Q", v))[0]
                out[s][name.decode()] = v
        return out


def member_name(key, field):
    return key + b"." + field if field else key


def read_shard(tail, data):
    """All samples of a shard, checked; and its hash."""
    keys, members, attrs = tail.index()
    need(len(data) == tail.data_size, "length of the data")
    at, blocks, counts = 0, [], []
    for stored, decoded, samples, codec, crc in tail.rows:
        frame = data[at : at + stored]
        need(crc32c(frame) == crc, "frame checksum")
        frame = frame if codec == 0 else unzstd(frame)
        need(len(frame) == decoded, "frame length")
        if samples:
            blocks.append(b"")
            counts.append(samples)
        blocks[-1] += frame
        at += stored
    end = bytes(1024) if tail.plain else bytes.fromhex("28b52ffd640003032000" + "00" + "cdac85f0")
    need(data[tail.data_len :] == end, "end of archive")
    out, todo = [], iter(zip(keys, members, attrs))
    for block, count in zip(blocks, counts):
        if tail.layout:
            first = len(out)
            own = keys[first : first + count] if tail.numbered else None
            for i, (key, fields) in enumerate(read_rows(block, tail.layout, first, count, own)):
                need(key == keys[first + i] and [(n, len(v)) for n, v in fields.items()] == members[first + i], "key or sizes of a row")
                out.append((key, fields, attrs[first + i]))
            continue
        f = Fields(block)
        for _ in range(count):
            key, sizes, values = next(todo)
            fields = {}
            for field, size in sizes:
                want = header(member_name(key, field), size)
                need(f.take(len(want)) == want, "tar header")
                fields[field] = f.take(size)
                need(not any(f.take(-size % 512)), "padding")
            out.append((key, fields, values))
        f.end()
    hashes = [hashlib.sha256(b).digest() for b in blocks]
    if tail.layout and tail.numbered:
        hashes.append(hashlib.sha256(tail.sections.want("KNUM")).digest())
    return out, hashlib.sha256(b"".join(hashes)).digest()
