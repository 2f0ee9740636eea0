"""What a build is told: one frozen dataclass for each table of config.toml, with its defaults.

A step whose table is absent (None here) is not taken. Sizes and token counts may be written as
text ("64MiB", "256M"); `reading` turns them into numbers. What `ranges` allows them to be, and the
comment behind each, go into docs/reference/data.md.
"""

from __future__ import annotations

from meshwright.base.noun import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Files that belong together: near duplicates are sought within, weights are given to them."""

    files: tuple[str, ...]  # paths, globs, fsspec URLs, "-" for standard input
    name: str = "text"  # of the source, each another; in the manifest and in `stats`
    format: str = "auto"  # auto = by the ending of each file
    text_field: str = "text"  # a dotted path in jsonl, a column in parquet
    id_field: str = ""  # likewise; "" = none
    documents: str = "file"  # of text files: what is one; paragraphs end at blank lines
    weight: float | None = None  # share of the training tokens; without it what it has


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may be wrong with the input, and how large things may get."""

    bad_fraction: float = 0.01  # of a file's documents; more that are unreadable stop a build
    document_bytes: int = 16 << 20  # longer lines and documents are set aside as bad
    expansion: float = 1000.0  # decompressed over stored bytes, beyond the first GiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """Repair of text before anything is judged."""

    normalize: str = "none"  # form of Unicode
    strip_controls: bool = True  # NUL and other control characters but tab and line ends; BOM
    newlines: bool = True  # CRLF and CR to LF
    mojibake: bool = False  # UTF-8 that was decoded as something else, mended by ftfy
    rstrip_lines: bool = False  # blanks at the ends of lines go
    min_characters: int = 1  # shorter documents are dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Keeps documents of some languages, as fastText's lid.176 identifies them."""

    keep: tuple[str, ...]  # ISO 639 codes
    min_score: float = 0.65  # of the identification; documents below it go too


@dataclass(frozen=True, slots=True, kw_only=True)
class GopherQuality:
    """Rae et al. 2021 (arXiv 2112.11446), table A1. Words as in `words.table`."""

    min_words: int = 50  # of a document
    max_words: int = 100_000  # likewise
    min_mean_word_length: float = 3.0  # characters of a word, over all words
    max_mean_word_length: float = 10.0  # likewise
    max_symbol_ratio: float = 0.1  # "#" or "..." over words
    max_bullet_lines: float = 0.9  # share of the lines that begin with a bullet
    max_ellipsis_lines: float = 0.3  # share of the lines that end in an ellipsis
    min_alphabetic_words: float = 0.8  # share of the words with at least one letter
    min_stop_words: int = 2  # of the, be, to, of, and, that, have, with


@dataclass(frozen=True, slots=True, kw_only=True)
class GopherRepetition:
    """Rae et al. 2021 (arXiv 2112.11446), table A1: at most such shares may repeat."""

    duplicate_lines: float = 0.30  # lines that repeat an earlier one, of all lines
    duplicate_line_characters: float = 0.20  # characters in them, of all characters
    duplicate_paragraphs: float = 0.30  # paragraphs that repeat an earlier one, of all
    duplicate_paragraph_characters: float = 0.20  # characters in them, of all characters
    top_2_gram: float = 0.20  # characters in the commonest pair of words
    top_3_gram: float = 0.18  # characters in the commonest 3 words in a row
    top_4_gram: float = 0.16  # characters in the commonest 4 words in a row
    duplicate_5_grams: float = 0.15  # characters in repeated runs of 5 words
    duplicate_6_grams: float = 0.14  # characters in repeated runs of 6 words
    duplicate_7_grams: float = 0.13  # characters in repeated runs of 7 words
    duplicate_8_grams: float = 0.12  # characters in repeated runs of 8 words
    duplicate_9_grams: float = 0.11  # characters in repeated runs of 9 words
    duplicate_10_grams: float = 0.10  # characters in repeated runs of 10 words


@dataclass(frozen=True, slots=True, kw_only=True)
class C4:
    """Raffel et al. 2020 (arXiv 1910.10683), section 2.2: removes lines, then drops documents."""

    terminal_punctuation: bool = True  # lines must end in . ? ! or a quotation mark
    min_words_per_line: int = 3  # a line with fewer goes
    max_word_length: int = 1000  # a line with a longer word goes
    javascript_lines: bool = True  # lines that name JavaScript go
    policy_lines: bool = True  # lines on cookies, terms of use and privacy go
    lorem_ipsum: bool = True  # documents with placeholder text go
    curly_bracket: bool = True  # documents with a curly bracket go
    min_sentences: int = 5  # left in a document


@dataclass(frozen=True, slots=True, kw_only=True)
class FineWeb:
    """Penedo et al. 2024 (arXiv 2406.17557), section 3.6."""

    min_punctuated_lines: float = 0.12  # share of the lines that end in punctuation
    max_short_lines: float = 0.67  # share of the lines
    short_line_characters: int = 30  # a line with that many or fewer is short
    max_duplicate_line_characters: float = 0.01  # share in lines that repeat an earlier one
    max_newlines_per_word: float = 0.3  # line ends over words


@dataclass(frozen=True, slots=True, kw_only=True)
class Pii:
    """Personal data replaced by placeholders that depend on nothing but the match."""

    kinds: tuple[str, ...] = ("email", "ip")  # what is sought


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup:
    """Exact and near duplicates; the first in (source, file, line) stays."""

    exact: bool = True  # equal after cleaning, case and all
    near: bool = False  # MinHash finds candidates, their exact similarity decides
    threshold: float = 0.8  # Jaccard similarity of the sets of shingles
    shingle_words: int = 5  # words of a shingle
    bands: int = 20  # p(found at J) = 1 - (1 - J^rows)^bands
    rows: int = 6  # minima of a band
    scope: str = "all"  # source: near duplicates of another source stay
    memory_bytes: int = 256 << 20  # of the keys that are sorted at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Decontaminate:
    """Drops documents that share a run of words with a test set."""

    files: tuple[str, ...]  # test sets: paths and globs, read as the inputs are
    ngram_words: int = 13  # of the run
    fields: tuple[str, ...] = ()  # of the test sets' records; [] = every string in them


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSource:
    """Whose ids the text becomes."""

    file: str  # tokenizer.json, a folder that holds one, a .tiktoken file, a sentencepiece .model
    kind: str = "auto"  # of the file; auto = by its name
    pattern: str = ""  # of a .tiktoken file: a known name (cl100k, o200k, ...) or the expression
    eod: str = ""  # the token behind each document; "" = what the vocabulary calls its end of text
    library: str = "auto"  # reference = the one that defines the vocabulary; auto = a faster one
    check_documents: int = 8  # of each unit, compared with the reference library


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """How documents share rows of `seq_len` tokens."""

    seq_len: int = 4096  # tokens of a row
    strategy: str = "concatenate"  # how documents come into rows, see the concepts
    layout: str = "auto"  # what a sequence of .bin is; auto = rows for best-fit, else documents


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """How much of each source; used where a source has a weight."""

    tokens: float | None = None  # for training; without it until every source is used whole
    max_repeats: float = 4.0  # of one source at most: it ends what grows, and refuses `tokens`


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the shards go and how large they are."""

    folder: str  # where the shards go
    shard_tokens: int = 256_000_000  # of a shard, about
    text: bool = False  # also parquet of the cleaned text
    keep_work: bool = False  # the intermediate files, for a later build with other settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One build: everything that decides its output, and nothing else."""

    sources: tuple[Source, ...]
    output: Output
    tokenizer: TokenizerSource | None = None  # without it a build stops at the cleaned text
    limits: Limits = Limits()
    clean: Clean = Clean()
    language: Language | None = None
    gopher_quality: GopherQuality | None = None
    gopher_repetition: GopherRepetition | None = None
    c4: C4 | None = None
    fineweb: FineWeb | None = None
    pii: Pii | None = None
    dedup: Dedup = Dedup()
    decontaminate: Decontaminate | None = None
    pack: Pack = Pack()
    mix: Mix = Mix()
    seed: int = 0  # of the shuffle and the split
    validation: float = 0.0  # share of the documents that is held out
