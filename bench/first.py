"""Prints the milliseconds from making a loader to its first batch of 256, imports not counted.

first.py shardtool DATASET        shuffled, with the defaults
first.py webdataset ARCHIVE…      shuffle(5000, initial=5000), plain tars
"""

import sys
import time


def shardtool_loader(sources):
    import shardtool

    def begin():
        loader = shardtool.Loader(sources[0], batch_size=256, shuffle=True, seed=1, fields={"txt": "bytes"})
        return loader, loader.close

    return begin


def webdataset_loader(sources):
    import webdataset

    def begin():
        data = webdataset.WebDataset(sources, shardshuffle=len(sources), empty_check=False)
        return data.shuffle(5000, initial=5000).to_tuple("txt").batched(256), lambda: None

    return begin


def main():
    make = {"shardtool": shardtool_loader, "webdataset": webdataset_loader}[sys.argv[1]](sys.argv[2:])
    begin = time.perf_counter()
    loader, close = make()
    batch = next(iter(loader))
    took = time.perf_counter() - begin
    assert batch
    close()
    print(1000 * took)


if __name__ == "__main__":
    main()
