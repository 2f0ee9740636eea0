"""Rows that other loaders serve from the tokens of a folder of ours; prints rows and CPU seconds.

    python loaders.py megatron|megatron-masks|litdata|streaming FOLDER ROWS SEQ_LEN

Each is built first, which is not counted, and warmed with a few rows. GPTDataset is indexed as its
own sampler indexes it; its tensors are not collated. litdata and streaming are iterated.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import typing
import warnings
from pathlib import Path
from typing import Any

import numpy as np

WARM = 16


def megatron(folder: Path, *, rows: int, seq_len: int, masks: bool) -> Any:
    """GPTDataset of megatron-core over the first shard's own files."""
    if not hasattr(typing, "override"):  # Python 3.11
        typing.override = lambda method: method  # type: ignore[attr-defined]
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    class Tokenizer:
        eod, pad, vocab_size = 0, 1, 50_257
        unique_identifiers: typing.ClassVar = {"class": "benchmark"}

    cache = tempfile.mkdtemp()
    config = GPTDatasetConfig(
        random_seed=0,
        sequence_length=seq_len,
        blend=None,
        split="1,0,0",
        path_to_cache=cache,
        tokenizer=Tokenizer(),
        reset_position_ids=masks,
        reset_attention_mask=masks,
        eod_mask_loss=masks,
        create_attention_mask=False,
        inter_document_masking=masks,
    )
    prefix = str(folder / "train-00000")
    indexed = IndexedDataset(prefix, multimodal=False, mmap=True)
    documents = np.arange(len(indexed.document_indices) - 1, dtype=np.int32)
    return GPTDataset(indexed, prefix, documents, rows + WARM, Split.train, config)


def rows_of(folder: Path, *, rows: int, seq_len: int) -> np.ndarray[Any, Any]:
    """Tokens of the first shard as rows."""
    tokens = np.fromfile(folder / "train-00000.bin", dtype=np.uint16)
    return np.resize(tokens, (rows + WARM, seq_len))


def litdata(folder: Path, *, rows: int, seq_len: int) -> Any:
    """StreamingDataset of litdata over rows that it wrote."""
    import torch
    from litdata import StreamingDataset
    from litdata.streaming import Cache
    from litdata.streaming.item_loader import TokensLoader

    cache_folder = tempfile.mkdtemp()
    cache = Cache(cache_folder, chunk_bytes="64MB", item_loader=TokensLoader(block_size=seq_len))
    for number, row in enumerate(rows_of(folder, rows=rows, seq_len=seq_len)):
        cache[number] = torch.from_numpy(row)
    cache.done()
    cache.merge()
    return StreamingDataset(cache_folder, item_loader=TokensLoader(seq_len), shuffle=True)


def streaming(folder: Path, *, rows: int, seq_len: int) -> Any:
    """StreamingDataset of mosaicml-streaming over rows that its writer wrote."""
    from streaming import MDSWriter, StreamingDataset

    local = tempfile.mkdtemp()
    with MDSWriter(out=local, columns={"tokens": f"ndarray:uint16:{seq_len}"}) as writer:
        for row in rows_of(folder, rows=rows, seq_len=seq_len):
            writer.write({"tokens": row})
    return StreamingDataset(local=local, shuffle=True, batch_size=1)


def main() -> None:
    warnings.simplefilter("ignore")
    name, path, rows_text, seq_len_text = sys.argv[1:]
    folder, rows, seq_len = Path(path), int(rows_text), int(seq_len_text)
    if name.startswith("megatron"):
        data = megatron(folder, rows=rows, seq_len=seq_len, masks=name.endswith("masks"))
        items = (data[number] for number in range(rows + WARM))
    else:
        made = {"litdata": litdata, "streaming": streaming}[name]
        items = iter(made(folder, rows=rows, seq_len=seq_len))
    for _ in range(WARM):
        next(items)
    began_s = time.process_time()
    count = sum(1 for _, _ in zip(range(rows), items, strict=False))
    print(json.dumps({"rows": count, "cpu_s": time.process_time() - began_s}))


if __name__ == "__main__":
    main()
