"""What Megatron-LM's tools/preprocess_data.py does, for where only the package of megatron-core is.

    python megatron_loop.py INPUT.jsonl OUTPUT_PREFIX TOKENIZER.json EOD_ID

The same work in the same order: one pool of one worker, `imap` by 32 lines, `json.loads` and one
call of the tokenizer for each document, EOD behind it, megatron-core's own IndexedDatasetBuilder.
The tokenizer is called through `tokenizers`, which spares Megatron what transformers adds to each
call. Prints one JSON object: CPU seconds of imports, and of the work with its worker.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from typing import Any

START_S = time.process_time()


class Encoder:
    """One for each worker, as in the script."""

    tokenizer: Any = None

    def __init__(self, path: str, eod_id: int) -> None:
        self.path, self.eod_id = path, eod_id

    def begin(self) -> None:
        """Loads the tokenizer in the worker."""
        from tokenizers import Tokenizer

        Encoder.tokenizer = Tokenizer.from_file(self.path)

    def encode(self, line: str) -> tuple[list[int], list[int], int]:
        """Ids of one document, the lengths of its sentences (it is one), bytes read."""
        text = json.loads(line)["text"]
        ids = list(Encoder.tokenizer.encode(text).ids)
        lengths = [len(ids)] if ids else []
        if ids:
            ids.append(self.eod_id)
            lengths[-1] += 1
        return ids, lengths, len(line)


def cpu_s() -> float:
    """Of this process and of the workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    source, prefix, tokenizer, eod_id = sys.argv[1:]
    import torch  # noqa: F401
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
    from tokenizers import Tokenizer

    imports_s = time.process_time() - START_S
    before = cpu_s()
    encoder = Encoder(tokenizer, int(eod_id))
    size = Tokenizer.from_file(tokenizer).get_vocab_size()
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=DType.optimal_dtype(size))
    pool = multiprocessing.Pool(1, initializer=encoder.begin)
    with open(source, encoding="utf-8") as lines:
        for ids, lengths, _ in pool.imap(encoder.encode, lines, 32):
            builder.add_document(ids, lengths)
    builder.finalize(f"{prefix}.idx")
    pool.close()
    pool.join()
    print(json.dumps({"imports_s": imports_s, "cpu_s": cpu_s() - before}))


if __name__ == "__main__":
    main()
