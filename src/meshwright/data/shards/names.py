"""What the files of an output folder are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST = "manifest.json"
DOCUMENTS = "documents.parquet"
REJECTED = "rejected.jsonl"
CONFIG = "config.toml"
RECORD = ".build.json"  # what the folder is made from, and how long that took
LOCK = ".lock"  # held while a build is at work
TOKENIZER = "tokenizer"  # a folder
WORK = ".work"  # the intermediate files, below the output folder
SPOOL = f"{WORK}/input"  # where standard input is kept
SPLITS = ("train", "valid")
SAMPLE = 32  # documents of each file of text that `verify` encodes again
CONTENTS: Mapping[str, str] = {  # what a build leaves in its folder
    "train-00000.bin": "ids of the tokens, end to end, as Megatron-LM reads them",
    "train-00000.idx": "where each sequence of .bin lies, likewise",
    "train-00000.rows.npy": "a NumPy array with a record for each row of seq_len tokens",
    "train-00000.pieces.npy": "likewise for each piece of a document in a row",
    "valid-00000.*": "the same four for what is held out, where `validation` is above 0",
    "text-00000.parquet": "the cleaned text of what is kept, with `output.text`",
    "documents.parquet": "every document that was read, with what became of it",
    "rejected.jsonl": "lines that are no documents, if there are any: file, line, reason, excerpt",
    "tokenizer/": "the files of the vocabulary, as its library reads them",
    "config.toml": "the settings, to build from again; paths are relative to the file",
    "manifest.json": "what is here and how it was made, with a digest of every file; written last",
    RECORD: "what the build is known by and how long it took; alone differs between runs",
    ".work/": "finished units, until the build is done; stays with `output.keep_work`",
}
ENDS = (".bin", ".idx", ".rows.npy", ".pieces.npy")  # of the files of a shard

_OURS = pattern(
    r"(?:train|valid)-\d{5,9}\.(?:bin|idx|rows\.npy|pieces\.npy)\Z"
    r"|text-\d{5,9}\.parquet\Z|documents\.parquet\Z|rejected\.jsonl\Z"
    r"|config\.toml\Z|manifest\.json\Z"
)
_PLAIN = pattern(r"(?!\.)[\w.+-]{1,200}\Z")


def shard_name(split: str, number: int) -> str:
    """The name that the files of a shard begin with: "train-00003"."""
    return f"{split}-{number:05d}"


def is_ours(name: str) -> bool:
    """Whether a build writes a file of that name into its output folder itself."""
    return _OURS.match(name) is not None


def printable(path: str) -> str:
    """A path as valid Unicode: bytes that are no UTF-8 are spelled out; "-" for standard input."""
    if path.endswith(f"{SPOOL}/stdin"):
        return "-"
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def is_shard(name: str, split: str) -> bool:
    """Whether a build calls a shard of that split so."""
    return split in SPLITS and name.startswith(f"{split}-") and is_ours(f"{name}.bin")


def is_safe(name: str) -> bool:
    """Whether a name in a manifest is that of a file inside the folder, by its letters alone."""
    if is_ours(name):
        return name != MANIFEST
    folder, _, file = name.partition("/")
    return folder == TOKENIZER and _PLAIN.match(file) is not None
