"""Why a document is dropped: one code for each reason, the same in every file of a build."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT = ""

REASONS: Mapping[str, str] = {  # reason: what it says; its code is its place, 0 = kept
    KEPT: "kept",
    "empty": "nothing left after cleaning, or fewer characters than clean.min_characters",
    "language": "not in a language to keep, or identified with too low a score",
    "c4.lorem_ipsum": "placeholder text",
    "c4.curly_bracket": "a curly bracket: code or a template",
    "c4.sentences": "too few sentences left",
    "gopher_quality.words": "too few or too many words",
    "gopher_quality.word_length": "mean length of the words out of range",
    "gopher_quality.symbols": "too many # or ellipses for its words",
    "gopher_quality.bullets": "too many lines begin with a bullet",
    "gopher_quality.ellipses": "too many lines end in an ellipsis",
    "gopher_quality.alphabetic": "too few words hold a letter",
    "gopher_quality.stop_words": "too few of the commonest English words",
    "fineweb.punctuated_lines": "too few lines end in punctuation",
    "fineweb.short_lines": "too many short lines",
    "fineweb.duplicate_lines": "too many of its characters are in repeated lines",
    "fineweb.newlines": "too many line ends for its words: a list",
    "gopher_repetition.lines": "too many lines are repeated",
    "gopher_repetition.line_characters": "too much of it is repeated lines",
    "gopher_repetition.paragraphs": "too many paragraphs are repeated",
    "gopher_repetition.paragraph_characters": "too much of it is repeated paragraphs",
    "gopher_repetition.top_2_gram": "its commonest pair of words covers too much of it",
    "gopher_repetition.top_3_gram": "its commonest 3 words in a row cover too much of it",
    "gopher_repetition.top_4_gram": "its commonest 4 words in a row cover too much of it",
    "gopher_repetition.duplicate_5_grams": "too much of it is in repeated runs of 5 words",
    "gopher_repetition.duplicate_6_grams": "too much of it is in repeated runs of 6 words",
    "gopher_repetition.duplicate_7_grams": "too much of it is in repeated runs of 7 words",
    "gopher_repetition.duplicate_8_grams": "too much of it is in repeated runs of 8 words",
    "gopher_repetition.duplicate_9_grams": "too much of it is in repeated runs of 9 words",
    "gopher_repetition.duplicate_10_grams": "too much of it is in repeated runs of 10 words",
    "contaminated": "shares a run of words with a test set",
    "exact_duplicate": "equal to an earlier document",
    "near_duplicate": "nearly equal to an earlier document that is kept",
    "mix": "left out: its source has more than its share of the output",
}
KEYS: Mapping[str, tuple[str, ...]] = {  # reason: the keys of config.toml that decide it
    "empty": ("clean.min_characters",),
    "language": ("language.keep", "language.min_score"),
    "c4.lorem_ipsum": ("c4.lorem_ipsum",),
    "c4.curly_bracket": ("c4.curly_bracket",),
    "c4.sentences": ("c4.min_sentences",),
    "gopher_quality.words": ("gopher_quality.min_words", "gopher_quality.max_words"),
    "gopher_quality.word_length": (
        "gopher_quality.min_mean_word_length",
        "gopher_quality.max_mean_word_length",
    ),
    "gopher_quality.symbols": ("gopher_quality.max_symbol_ratio",),
    "gopher_quality.bullets": ("gopher_quality.max_bullet_lines",),
    "gopher_quality.ellipses": ("gopher_quality.max_ellipsis_lines",),
    "gopher_quality.alphabetic": ("gopher_quality.min_alphabetic_words",),
    "gopher_quality.stop_words": ("gopher_quality.min_stop_words",),
    "fineweb.punctuated_lines": ("fineweb.min_punctuated_lines",),
    "fineweb.short_lines": ("fineweb.max_short_lines", "fineweb.short_line_characters"),
    "fineweb.duplicate_lines": ("fineweb.max_duplicate_line_characters",),
    "fineweb.newlines": ("fineweb.max_newlines_per_word",),
    **{
        f"gopher_repetition.{name}": (f"gopher_repetition.duplicate_{name}",)
        for name in ("lines", "line_characters", "paragraphs", "paragraph_characters")
    },
    **{
        reason: (reason,)
        for reason in REASONS
        if reason.startswith("gopher_repetition.") and reason.endswith(("gram", "grams"))
    },
    "contaminated": ("decontaminate.files", "decontaminate.ngram_words", "decontaminate.fields"),
    "exact_duplicate": ("dedup.exact",),
    "near_duplicate": ("dedup.near", "dedup.threshold", "dedup.shingle_words", "dedup.scope"),
    "mix": ("source.weight", "mix.tokens", "mix.max_repeats"),
}
CODES: Mapping[str, int] = {reason: code for code, reason in enumerate(REASONS)}
