"""What the values of settings may be, beyond their types: choices, ranges, and how they combine."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.names import did_you_mean, nearest, question
from meshwright.base.problem import Problem
from meshwright.data.settings import GopherRepetition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.data.settings import Build, Dedup

LEAST_FOUND = 0.9  # of the near duplicates at the threshold, by bands and rows
MOST_HASHES = 512  # bands times rows of near dedup
_FAIR_HASHES = 160  # likewise where that will do: the defaults make 120
MOST_TOKENS = 2**24  # of a row, which loaders hold whole and layout "rows" writes whole

CHOICES: Mapping[str, tuple[str, ...]] = {  # of keys that hold one of a few words
    "source.format": ("auto", "jsonl", "parquet", "text"),
    "source.documents": ("file", "line", "paragraph"),
    "pii.kinds": ("email", "ip", "phone", "iban"),  # several of them
    "clean.normalize": ("none", "nfc", "nfkc"),
    "dedup.scope": ("all", "source"),
    "tokenizer.kind": ("auto", "json", "tiktoken", "sentencepiece"),
    "tokenizer.library": ("auto", "reference"),
    "pack.strategy": ("concatenate", "best-fit", "padded"),
    "pack.layout": ("auto", "documents", "rows"),
}
_PATHS = ("files", "file", "folder")  # keys that hold them
_LANGUAGES = "write ISO 639 codes, as en, de, zh"
_EACH = ("source.", "pii.")  # of which there may be several
_SHARE = (0, 1)
RANGES: Mapping[str, tuple[float, float]] = {  # of numbers: the least and the most, both allowed
    "limits.bad_fraction": _SHARE,
    "limits.document_bytes": (1, 2**31 - 1),
    "limits.expansion": (1, 1e9),
    "clean.min_characters": (0, 2**31 - 1),
    "language.min_score": _SHARE,
    "gopher_quality.min_words": (0, 2**31 - 1),
    "gopher_quality.max_words": (1, 2**31 - 1),
    "gopher_quality.min_mean_word_length": (0, 1e6),
    "gopher_quality.max_mean_word_length": (0, 1e6),
    "gopher_quality.max_symbol_ratio": (0, 1e6),
    "gopher_quality.max_bullet_lines": _SHARE,
    "gopher_quality.max_ellipsis_lines": _SHARE,
    "gopher_quality.min_alphabetic_words": _SHARE,
    "gopher_quality.min_stop_words": (0, 8),
    **{f"gopher_repetition.{field.name}": _SHARE for field in fields(GopherRepetition)},
    "c4.min_words_per_line": (0, 2**31 - 1),
    "c4.max_word_length": (1, 2**31 - 1),
    "c4.min_sentences": (0, 2**31 - 1),
    "fineweb.min_punctuated_lines": _SHARE,
    "fineweb.max_short_lines": _SHARE,
    "fineweb.short_line_characters": (0, 2**31 - 1),
    "fineweb.max_duplicate_line_characters": _SHARE,
    "fineweb.max_newlines_per_word": (0, 1e6),
    "dedup.threshold": (0.01, 1),
    "dedup.shingle_words": (1, 100),
    "dedup.bands": (1, MOST_HASHES),
    "dedup.rows": (1, MOST_HASHES),
    "dedup.memory_bytes": (1 << 20, 2**50),
    "decontaminate.ngram_words": (1, 1000),
    "tokenizer.check_documents": (0, 2**31 - 1),
    "pack.seq_len": (2, MOST_TOKENS),
    "mix.tokens": (1, 1e18),
    "mix.max_repeats": (0.001, 1e6),
    "output.shard_tokens": (1, 2**40),
    "seed": (0, 2**63 - 1),
}
_OTHERWISE = {  # what functions below demand
    "validation": "0 to below 1",
    "source.files": "at least one",
    "source.name": "not empty, no other source's",
    "source.text_field": "not empty",
    "source.weight": "above 0, to 1e9",
    "language.keep": "at least one; codes of lid.176",
    "tokenizer.file": "not empty",
    "decontaminate.files": "at least one",
    "output.folder": "not empty, no URL",
}


def problems_of(build: Build) -> list[Problem]:
    """Everything wrong with the values of a build; keys are those of config.toml.

    How values combine is looked at only where each by itself is right.
    """
    found = [
        *_choice_problems(build),
        *_range_problems(build),
        *_source_problems(build),
        *_list_problems(build),
        *_text_problems(build),
    ]
    return found or list(_combination_problems(build))


def check_build(build: Build) -> None:
    """InvalidInput with everything wrong with the values of a build, wherever they come from."""
    found = [
        Finding(message=str(problem), key=problem.key, value=problem.value, hint=problem.hint)
        for problem in problems_of(build)
    ]
    if found:
        raise InvalidInput(found)


def allowed(key: str) -> str:
    """What the value of a key may be, in words; "" where any of its type will do."""
    if key in RANGES:
        least, most = RANGES[key]
        return f"{_short(least)} to {_short(most)}"
    return _OTHERWISE.get(key, ", ".join(CHOICES.get(key, ())))


def _choice_problems(build: Build) -> Iterator[Problem]:
    for key, choices in CHOICES.items():
        if not key.startswith(_EACH):
            yield from _not_among(key, _value(build, key), choices)


def _range_problems(build: Build) -> Iterator[Problem]:
    for key, (least, most) in RANGES.items():
        yield from _out_of(key, _value(build, key), least=least, most=most)
    if not 0 <= build.validation < 1:
        reason = "is not a share of the documents from 0 to below 1"
        yield Problem("validation", build.validation, reason, _share_hint(build.validation))


def _share_hint(value: float) -> str:
    """What to write in place of a share that is out of range: 0.05 for 5, which was percent."""
    percent = 1 < value < 100 and float(value).is_integer()
    return f"write it as {value / 100 if percent else 0.001:g}"


def _source_problems(build: Build) -> Iterator[Problem]:
    names = [source.name for source in build.sources]
    for place, source in enumerate(build.sources):
        key = f"source.{place}"
        for name in ("format", "documents"):
            yield from _not_among(f"{key}.{name}", getattr(source, name), CHOICES[f"source.{name}"])
        if not source.files or "" in source.files:
            yield Problem(
                f"{key}.files", list(source.files), "names no file", 'write ["raw/*.jsonl"]'
            )
        if not source.name or names.index(source.name) != place:
            yield Problem(
                f"{key}.name", source.name, "is not a name of its own", "name it otherwise"
            )
        if source.weight is not None and not 0 < source.weight <= 1e9:
            reason = "is not a positive number"
            yield Problem(f"{key}.weight", source.weight, reason, "write a share such as 0.7")
        if not source.text_field:
            yield Problem(f"{key}.text_field", "", "is empty", 'write the field, as "text"')


def _list_problems(build: Build) -> Iterator[Problem]:
    if build.pii is not None:
        for place, kind in enumerate(build.pii.kinds):
            yield from _not_among(f"pii.kinds.{place}", kind, CHOICES["pii.kinds"])
    if build.language is not None and not build.language.keep:
        yield Problem("language.keep", [], "names no language", 'write ["en", "de"]')
    if build.language is not None:
        from meshwright.data.clean.language import CODES

        for place, code in enumerate(build.language.keep):
            if code not in CODES[1:]:
                hint = question(near) if (near := nearest(code, CODES[1:])) else _LANGUAGES
                yield Problem(f"language.keep.{place}", code, "is no language that is known", hint)
    if build.decontaminate is not None and not build.decontaminate.files:
        yield Problem("decontaminate.files", [], "names no test set", 'write ["eval/*.jsonl"]')
    if build.tokenizer is not None and not build.tokenizer.file:
        yield Problem("tokenizer.file", "", "names no file", 'write "tokenizer.json"')
    if not build.output.folder:
        yield Problem("output.folder", "", "names no folder", 'write "shards", or give -o shards/')
    if "://" in build.output.folder:
        reason, hint = "is a URL", "build into a local folder, then copy that"
        yield Problem("output.folder", build.output.folder, reason, hint)


def _text_problems(build: Build) -> Iterator[Problem]:
    """Text that no file can be called, or that no file can hold."""
    for key, text in _texts_in(build):
        try:
            text.encode()
        except UnicodeEncodeError:
            shown = text.encode(errors="replace").decode()
            yield Problem(key, shown, "is not valid Unicode", "rename it")
            continue
        if "\0" in text and any(part in _PATHS for part in key.split(".")):
            yield Problem(key, text, "holds a NUL byte, which no path does", "leave it out")


def _texts_in(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of the settings with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif is_dataclass(value):
        for field in fields(value):
            name = "source" if field.name == "sources" else field.name
            yield from _texts_in(getattr(value, field.name), f"{key}.{name}".lstrip("."))
    elif isinstance(value, tuple):
        for place, entry in enumerate(value):
            yield from _texts_in(entry, f"{key}.{place}")


def _missed_duplicates(dedup: Dedup) -> Iterator[Problem]:
    """Bands and rows that do not find what the threshold asks for: the one not set is to be."""
    from meshwright.data.dedup.minhash import share_found

    found = share_found(dedup)
    if found >= LEAST_FOUND:
        return
    default = type(dedup)()
    bands, rows = _found_by(dedup)
    reason = f"needs other bands than {dedup.bands} of {dedup.rows} rows, which find {found:.1%}"
    hint = f"set dedup.bands = {bands} and dedup.rows = {rows}" if bands else "raise it"
    if (dedup.bands, dedup.rows) == (default.bands, default.rows):
        yield Problem("dedup.threshold", dedup.threshold, f"{reason} of such pairs", hint)
        return
    key = "rows" if dedup.rows != default.rows else "bands"
    reason = (
        f"makes {dedup.bands} bands of {dedup.rows} rows, which find {found:.1%} of the pairs at "
        f"dedup.threshold = {dedup.threshold:g}"
    )
    yield Problem(f"dedup.{key}", getattr(dedup, key), reason, hint)


def _found_by(dedup: Dedup) -> tuple[int, int]:
    """Bands and rows that find 99 % at the threshold: the most rows that do not cost much more.

    More rows mean fewer pairs to compare, but more hashes a document. (0, 0) where none do.
    """
    from meshwright.data.dedup.minhash import share_found

    for hashes in (_FAIR_HASHES, MOST_HASHES):
        for rows in range(dedup.rows, 0, -1):
            for bands in range(1, hashes // rows + 1):
                if share_found(replace(dedup, bands=bands, rows=rows)) >= 0.99:
                    return bands, rows
    return 0, 0


def _combination_problems(build: Build) -> Iterator[Problem]:
    hashes = build.dedup.bands * build.dedup.rows
    if hashes > MOST_HASHES:
        reason = f"times dedup.rows makes {hashes} hashes a document; at most {MOST_HASHES}"
        yield Problem("dedup.bands", build.dedup.bands, reason, "20 bands of 6 rows find J >= 0.8")
    if build.dedup.near and hashes <= MOST_HASHES:
        yield from _missed_duplicates(build.dedup)
    quality = build.gopher_quality
    if quality is not None:
        for what in ("words", "mean_word_length"):
            least, most = getattr(quality, f"min_{what}"), getattr(quality, f"max_{what}")
            if least > most:
                reason = f"is more than max_{what} ({most}): no document passes"
                yield Problem(f"gopher_quality.min_{what}", least, reason, "lower it")
    if build.tokenizer is not None:  # without one nothing heeds weights, which is told elsewhere
        yield from _nothing_for_others(build)


def _nothing_for_others(build: Build) -> Iterator[Problem]:
    """Weights that leave no share to the sources without one."""
    weights = {n: one.weight for n, one in enumerate(build.sources) if one.weight is not None}
    given = sum(weights.values())
    if given >= 1 and len(weights) < len(build.sources):
        others = ", ".join(one.name for one in build.sources if one.weight is None)
        reason = f"makes the weights given add up to {given:g}, which leaves nothing for {others}"
        last = max(weights)
        hint = "give every source a weight, or let them add up to below 1"
        yield Problem(f"source.{last}.weight", weights[last], reason, hint)


def _not_among(key: str, value: Any, choices: Sequence[str]) -> Iterator[Problem]:
    if value is not None and value not in choices:
        yield Problem(key, value, "is none of the choices", did_you_mean(value, choices))


def _out_of(key: str, value: Any, *, least: float, most: float) -> Iterator[Problem]:
    if value is not None and not least <= value <= most:
        bound = f"below {_spelled(least)}" if value < least else f"above {_spelled(most)}"
        hint = f"write a number from {_spelled(least)} to {_spelled(most)}"
        yield Problem(key, value, f"is {bound}", hint)


def _spelled(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def _short(number: float) -> str:
    """A limit in as few signs: 2^31 - 1, 1e9."""
    whole = int(number)
    if number >= 1 << 20 and isinstance(number, int):
        if whole & (whole - 1) == 0:
            return f"2^{whole.bit_length() - 1}"
        if whole & (whole + 1) == 0:
            return f"2^{whole.bit_length()} - 1"
    return _spelled(number).replace("e+0", "e").replace("e+", "e")


def _value(build: Build, key: str) -> Any:
    """The value of a dotted key, None where a table is absent."""
    found: Any = build
    for part in key.split("."):
        found = getattr(found, part, None)
    return found
