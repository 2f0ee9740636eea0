"""Feeds packed shards to training: every rank its part of every step, and nothing twice.

    with Loader("shards/", global_batch_size=512, micro_batch_size=2, dp_size=64, dp_rank=3) as it:
        for batch in it:
            for micro in batch.micro_batches:
                ...

`order` and `epochs` say which row comes when, `stream` joins those of a blend; `place`, `deal` and
`slices` say what of it a rank gets; `reading` and `assembly` make the arrays; `loading` makes them
ahead of time; `dataset` serves torch's own loader.
"""

from meshwright.data.loader.batch import Batch, MicroBatch
from meshwright.data.loader.loading import Loader

__all__ = ["Batch", "Loader", "MicroBatch"]
