"""tiktoken over a jsonl file: json, encode_ordinary_batch on one thread, ids to a file.

    python tiktoken_loop.py INPUT.jsonl OUTPUT.bin FOLDER_OF_ENCODER_JSON_AND_VOCAB_BPE

Prints one JSON object: CPU seconds of imports, of loading the vocabulary, and of the work.
"""

from __future__ import annotations

import json
import sys
import time

START_S = time.process_time()
BATCH = 256


def main() -> None:
    source, target, folder = sys.argv[1:]
    import numpy as np
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks

    imported_s = time.process_time()
    ranks = data_gym_to_mergeable_bpe_ranks(
        vocab_bpe_file=f"{folder}/vocab.bpe", encoder_json_file=f"{folder}/encoder.json"
    )
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    encoding = tiktoken.Encoding(
        "gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
    )
    loaded_s = time.process_time()
    with open(source, encoding="utf-8") as lines, open(target, "wb") as out:
        batch: list[str] = []
        for line in lines:
            batch.append(json.loads(line)["text"])
            if len(batch) == BATCH:
                write(encoding, batch, out, np.uint16)
                batch = []
        write(encoding, batch, out, np.uint16)
    done_s = time.process_time()
    times = {"imports_s": imported_s - START_S, "load_s": loaded_s - imported_s}
    print(json.dumps({**times, "cpu_s": done_s - loaded_s}))


def write(encoding, batch, out, dtype) -> None:  # type: ignore[no-untyped-def]
    """Encodes some documents and writes their ids, EOD behind each."""
    import numpy as np

    for ids in encoding.encode_ordinary_batch(batch, num_threads=1):
        out.write(np.array([*ids, 50256], dtype=dtype).tobytes())


if __name__ == "__main__":
    main()
