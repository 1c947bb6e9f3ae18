"""Writes the arrays of this folder with NumPy: token ids of all kinds, and what is mistaken for them."""
import sys

import numpy as np
from numpy.lib import format as npy

where = sys.argv[1]
ids = np.random.default_rng(7).integers(0, 50257, size=1000)


def save(name, array):
    np.save(f"{where}/{name}.npy", array)


save("uint16", ids.astype(np.uint16))
save("int32-big", ids.astype(">i4"))
save("rows-int64", ids.reshape(125, 8)[:40])
save("fortran", np.asfortranarray(ids.astype(np.uint16).reshape(100, 10)[:4]))
save("objects", np.array([[1, 2], [3]], dtype=object))
save("float", np.array([1.0, 2.0]))
save("records", np.zeros(2, dtype=[("a", "<i4"), ("b", "<u2")]))
for version in (2, 3):
    with open(f"{where}/version{version}.npy", "wb") as out:
        npy.write_array(out, ids[:50].astype(np.uint32), version=(version, 0))
with open(f"{where}/two.npy", "wb") as out:
    np.save(out, ids[:5].astype(np.uint16))
    np.save(out, ids[5:9].astype(np.uint16))
memmap = npy.open_memmap(f"{where}/memmap.npy", mode="w+", dtype=np.uint16, shape=(300,))
memmap[:] = ids[:300]
memmap.flush()
