"""shardtool's Python package: shuffled, every block checked.

The data is eight times as large as the window that samples are shuffled in, as it is in training: every block is read and
decoded in every epoch.
"""

import data
import shardtool


class Copies(data.System):
    """Batches copied into this process."""

    copy = True

    def prepare(self, store):
        if store == "s3":
            data.upload(self.job, self.job["packed"], f"packed/{self.kind}")

    def folder(self):
        return self.job["packed"]

    def open(self, place, setting, state=None):
        url = self.folder()
        if place.s3:
            url = (
                f"s3://{place.s3['bucket']}/packed/{self.kind}?endpoint={place.s3['endpoint']}&region={place.s3['region']}&path_style=true"
            )
        field = self.job["field"]
        spec = {"tokens": ("int16", (data.TOKENS,)), "str": "str"}.get(self.kind, "bytes")
        order = shardtool.Order(shuffle_memory=max(self.job["bytes"] // 8, 4 << 20))
        loader = shardtool.Loader(url, self.batch, fields={field: spec}, shuffle=True, seed=1, tail="short",
                                  order=order, tuning=shardtool.Tuning(copy=setting.get("copy", self.copy)))
        if state:
            loader.load_state_dict(state)
        return self.wrap(loader, field)

    def wrap(self, loader, field):
        return data.Loader(self.job["samples"], lambda: (batch[field] for batch in loader), lambda seen: loader.state_dict(), loader.close)


class Views(Copies):
    """Views of batches in the memory shared with the child process."""

    copy = False

    def wrap(self, loader, field):
        if self.kind == "tokens":
            return super().wrap(loader, field)
        out = data.Loader(self.job["samples"], lambda: iter(loader), lambda seen: loader.state_dict(), loader.close)
        out.count = lambda batch: (batch.size, len(batch.data(field)))
        out.payloads = lambda batch: map(bytes, batch.payloads(field))
        return out

