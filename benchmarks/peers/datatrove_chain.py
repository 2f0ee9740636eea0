"""datatrove's own stages over a folder of jsonl: filters, near duplicates, tokens for Megatron.

    python datatrove_chain.py INPUT_FOLDER OUTPUT_FOLDER TOKENIZER.json [fineweb | lenient]

Prints one JSON object: CPU seconds of each stage (`imports` apart), documents left. One task, one
process. `fineweb` has the settings of the FineWeb recipe: datatrove's defaults, C4 without its rule
on line ends. `lenient` judges by the same rules with bounds that nearly all documents pass, so that
every stage works on the whole input.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datatrove.data import DocumentsPipeline

START_S = time.process_time()


ALL = 1e9
LENIENT = {
    "quality": {
        "min_doc_words": 1,
        "max_doc_words": int(ALL),
        "min_avg_word_length": 0,
        "max_avg_word_length": int(ALL),
        "max_symbol_word_ratio": ALL,
        "max_bullet_lines_ratio": ALL,
        "max_ellipsis_lines_ratio": ALL,
        "max_non_alpha_words_ratio": -1.0,
        "min_stop_words": 0,
    },
    "repetition": {
        "dup_line_frac": ALL,
        "dup_para_frac": ALL,
        "dup_line_char_frac": ALL,
        "dup_para_char_frac": ALL,
        "top_n_grams": tuple((n, ALL) for n in (2, 3, 4)),
        "dup_n_grams": tuple((n, ALL) for n in (5, 6, 7, 8, 9, 10)),
    },
    "c4": {
        "filter_no_terminal_punct": False,
        "filter_curly_bracket": False,
        "filter_lorem_ipsum": False,
        "min_num_sentences": 0,
        "min_words_per_line": 0,
    },
    "fineweb": {
        "line_punct_thr": -1.0,
        "short_line_thr": ALL,
        "char_duplicates_ratio": ALL,
        "new_line_ratio": ALL,
    },
}
FINEWEB: dict[str, dict[str, Any]] = {
    "quality": {},
    "repetition": {},
    "c4": {"filter_no_terminal_punct": False},
    "fineweb": {},
}


def stages(source: str, out: Path, tokenizer: str, bounds: Any) -> dict[str, list[list[Any]]]:
    """Pipelines by the name under which their seconds are told."""
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import MegatronDocumentTokenizer
    from datatrove.pipeline.writers import JsonlWriter

    def at(name: str) -> str:
        return str(out / name)

    config = MinhashConfig()
    filters = [
        GopherRepetitionFilter(**bounds["repetition"]),
        GopherQualityFilter(**bounds["quality"]),
        C4QualityFilter(**bounds["c4"]),
        FineWebQualityFilter(**bounds["fineweb"]),
    ]
    kept = [JsonlWriter(at("filtered"), compression=None)]
    return {
        "filters": [[JsonlReader(source, glob_pattern="*.jsonl"), *filters, *kept]],
        "minhash": [
            [JsonlReader(at("filtered")), MinhashDedupSignature(at("signatures"), config=config)],
            [MinhashDedupBuckets(at("signatures"), at("buckets"), config=config)],
            [MinhashDedupCluster(at("buckets"), at("remove"), config=config)],
            [
                JsonlReader(at("filtered")),
                MinhashDedupFilter(at("remove")),
                JsonlWriter(at("deduplicated"), compression=None),
            ],
        ],
        "tokens": [
            [
                JsonlReader(at("deduplicated")),
                MegatronDocumentTokenizer(at("tokens"), tokenizer_name_or_path=tokenizer),
            ]
        ],
    }


def run(pipeline: list[Any], *, buckets: int) -> None:
    """A pipeline as one process runs it; the stage of the buckets has a task for each."""
    world = buckets if type(pipeline[0]).__name__ == "MinhashDedupBuckets" else 1
    for rank in range(world):
        data: DocumentsPipeline | None = None
        for step in pipeline:
            data = step(data, rank, world)
        if data is not None:
            for _ in data:
                pass


def main() -> int:
    logging.disable(logging.CRITICAL)
    source, out, tokenizer = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    from loguru import logger

    found: dict[str, Any] = {}
    bounds = LENIENT if "lenient" in sys.argv[4:] else FINEWEB
    pipelines = stages(source, out, tokenizer, bounds)
    logger.remove()
    found["imports"] = time.process_time() - START_S
    for name, group in pipelines.items():
        start = os.times()
        if name == "filters" or any((out / "filtered").glob("*")):  # else none passed them
            for pipeline in group:
                run(pipeline, buckets=14)
        end = os.times()
        found[name] = sum(end[:4]) - sum(start[:4])
    kept = out / "deduplicated"
    found["kept"] = sum(1 for path in kept.glob("*.jsonl") for _ in path.open("rb"))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
