"""What the files of an output folder are called."""

from __future__ import annotations

from meshwright.base.pattern import pattern

MANIFEST = "manifest.json"
DOCUMENTS = "documents.parquet"
REJECTED = "rejected.jsonl"
CONFIG = "config.toml"
TOKENIZER = "tokenizer"  # a folder
WORK = ".work"  # the intermediate files, below the output folder
SPOOL = f"{WORK}/input"  # where standard input is kept
SPLITS = ("train", "valid")
SAMPLE = 32  # documents of each file of text that `verify` encodes again
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
