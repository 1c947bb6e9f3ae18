"""shardtool: training data in compressed shards, shuffled, split over ranks, resumable at the exact
sample.

::

    import shardtool

    fields = {"jpg": "bytes", "cls": "int"}
    loader = shardtool.Loader("out/", batch_size=64, shuffle=True, seed=7, fields=fields)
    for batch in loader:
        train(batch["jpg"], batch["cls"])

The program ``shardtool`` does the work in a child process. The package needs only Python; numpy and
torch are used on request. ``shardtool.errors`` has the errors, ``shardtool.torch`` what only
PyTorch needs, and ``shardtool.grain`` what only Grain needs.
"""

import importlib as _importlib
import sys as _sys
import typing as _typing

if _typing.TYPE_CHECKING:
    from . import errors as errors
    from ._read.units import Bucket as Bucket
    from ._read.units import Pack as Pack
    from ._write.annotate import annotate as annotate
    from ._write.optimize import optimize as optimize
    from .batch import Batch as Batch
    from .errors import BinaryError as BinaryError
    from .errors import CheckpointError as CheckpointError
    from .errors import ClosedError as ClosedError
    from .errors import ConfigError as ConfigError
    from .errors import CorruptError as CorruptError
    from .errors import DataError as DataError
    from .errors import DecodeError as DecodeError
    from .errors import EncodeError as EncodeError
    from .errors import ExistsError as ExistsError
    from .errors import HeldError as HeldError
    from .errors import KeyNotFoundError as KeyNotFoundError
    from .errors import NotFoundError as NotFoundError
    from .errors import ServerDiedError as ServerDiedError
    from .errors import ShardtoolError as ShardtoolError
    from .errors import SkippedError as SkippedError
    from .errors import VersionError as VersionError
    from .images import Image as Image
    from .layer import Layer as Layer
    from .loader import Loader as Loader
    from .options import Faults as Faults
    from .options import Lanes as Lanes
    from .options import Order as Order
    from .options import Tuning as Tuning
    from .samples import Sample as Sample
    from .samples import Samples as Samples
    from .samples import open as open
    from .sources import Mix as Mix
    from .sources import Source as Source
    from .stats import SourceStats as SourceStats
    from .stats import Stalls as Stalls
    from .stats import Stats as Stats
    from .torch import Dataset as Dataset
    from .writer import Writer as Writer

#: The modules of what has this package as its home. Each is imported at its first use: all of them
#: take longer than a command or a worker should wait for what it does not use.
_HOMES = {
    "Batch": "batch", "Bucket": "_read.units", "Dataset": "torch", "Faults": "options", "Image": "images", "Lanes": "options",
    "Layer": "layer",
    "Loader": "loader", "Mix": "sources", "Order": "options", "Pack": "_read.units", "Sample": "samples", "Samples": "samples",
    "Source": "sources", "SourceStats": "stats", "Stalls": "stats", "Stats": "stats", "Tuning": "options", "Writer": "writer",
    "annotate": "_write.annotate", "open": "samples", "optimize": "_write.optimize",
}  # fmt: skip
_MODULES = ("errors", "grain", "torch")
#: The errors, which programs may have from here too.
_ERRORS = (
    "BinaryError", "CheckpointError", "ClosedError", "ConfigError", "CorruptError", "DataError", "DecodeError", "EncodeError",
    "ExistsError", "HeldError", "KeyNotFoundError", "NotFoundError", "ServerDiedError", "ShardtoolError", "SkippedError", "VersionError",
)  # fmt: skip

# Without what needs torch or Grain, and without names that a program has of its own: open, torch.
__all__ = [
    "Batch", "Bucket", "Faults", "Image", "Lanes", "Layer", "Loader", "Mix", "Order", "Pack", "Sample", "Samples", "Source", "SourceStats",
    "Stalls", "Stats", "Tuning", "Writer", "annotate", "errors", "optimize",
]  # fmt: skip


def __dir__() -> _typing.List[str]:
    return sorted([*_HOMES, *_MODULES, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"])


def __getattr__(name: str) -> _typing.Any:
    home = name if name in _MODULES else "errors" if name in _ERRORS else _HOMES.get(name)
    if home is not None:
        try:
            module = _importlib.import_module("." + home, __name__)
        except ModuleNotFoundError as err:
            if home != "torch":
                raise
            raise AttributeError(str(err)) from err
        value = globals()[name] = module if name in _MODULES else getattr(module, name)
        return value
    if name == "__version__":
        return _importlib.import_module("._wire.program", __name__).package_version() or "0+unknown"  # a source tree in PYTHONPATH
    raise _importlib.import_module(".guesses", __name__).absent(__name__, name, [*_HOMES, *_MODULES], _sys._getframe(1))


class _Others:
    """Answers imports of modules that this package does not have."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.startswith(__name__ + ".") and not name.rpartition(".")[2].startswith("_"):
            parent = name.rpartition(".")[0]
            names = [*_HOMES, *_MODULES] if parent == __name__ else getattr(_sys.modules[parent], "__all__", ())
            has = f"{parent} has {', '.join(names)}" if names else f"{parent} has no such module"
            raise ModuleNotFoundError(f"No module named {name!r}: {has}")


_sys.meta_path.append(_typing.cast(_typing.Any, _Others))
