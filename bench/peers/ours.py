"""shardtool's Python package: shuffled, every block checked.

The data is eight times as large as the window that samples are shuffled in, as it is in training: every block is read and
decoded in every epoch.
"""

import data


class Copies(data.System):
    """Batches of bytes objects and arrays."""

    package = stored = "shardtool"

    def folder(self, form=""):
        return super().folder() if self.kind == "packed" else self.job["packed"]

    def pack(self, folder, form):
        with self.module.Writer(folder, attrs={"tokens": "tokens"}) as sink:
            for row in self.rows():
                sink.write({"input_ids": row, "tokens": len(row)})

    def settings(self, store):
        return [{}]

    def open(self, place, setting, state=None):
        url, field = self.address(place), self.job["field"]
        fields, more = {field: {"tokens": ("int16", (data.TOKENS,)), "str": "str"}.get(self.kind, "bytes")}, {}
        if place.s3:
            url += f"?endpoint={place.s3['endpoint']}&region={place.s3['region']}&path_style=true"
        if self.parts:
            shares = zip(self.parts, data.WEIGHTS)
            url = {"sources": {f"s{i}": {"data": part.folder(), "weight": w} for i, (part, w) in enumerate(shares)}, "epoch": self.job["samples"]}
        if self.kind == "packed":
            field, fields, more = "input_ids", None, {"units": self.module.Pack(data.LENGTH, ["input_ids"])}
        order = self.module.Order(shuffle_memory=max(self.job["bytes"] // 8, 8 << 20))
        loader = self.module.Loader(url, self.batch, fields=fields, shuffle=True, seed=1, tail="short", order=order, **more)
        if state:
            loader.load_state_dict(state)
        return self.wrap(loader, field)

    def wrap(self, loader, field):
        return self.loader(lambda: (batch[field] for batch in loader), lambda seen: loader.state_dict(), loader.close)


class Views(Copies):
    """Views of bytes, in the memory shared with the child process."""

    def wrap(self, loader, field):
        out = super().wrap(loader, field)
        if self.kind in ("text", "images", "mix"):
            out.epoch = lambda: iter(loader)
            out.count = lambda batch: (batch.size, len(batch.data(field)))
            out.payloads = lambda batch: map(bytes, batch.payloads(field))
        return out
