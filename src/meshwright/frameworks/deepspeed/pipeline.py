"""Pipelines that only a comment tells of: DeepSpeed's JSON does not state the program's stages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import Setting, Span, Value

if TYPE_CHECKING:
    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Source

_LONGEST = 400  # characters of one comment that are looked at
_MODULE = pattern(r"\bPipelineModule\b|\bpipeline (?:engine|module|parallel)", re.IGNORECASE)
_STAGES = pattern(
    r"\b(?:num_stages\s*=\s*(?P<named>\d{1,4})|(?P<count>\d{1,4})\s+(?:pipeline\s+)?stages)\b",
    re.IGNORECASE,
)


def remarked_pipeline(config: Config) -> dict[str, Value]:
    """`pp`, where a comment speaks of a PipelineModule and of the number of its stages."""
    from meshwright.frameworks.text.comments import comments_of

    for source in config.sources:
        for span in comments_of(source):
            end = min(span.end, span.start + _LONGEST)
            if not _MODULE.search(source.text, span.start, end):
                continue
            stages = _STAGES.search(source.text, span.start, end)
            if stages is not None:
                return {"pp": _value(source, stages)}
    return {}


def _value(source: Source, stages: re.Match[str]) -> Value:
    group = "named" if stages.group("named") else "count"
    where = Span(*stages.span(group))
    number = max(int(stages.group(group)), 1)
    setting = Setting(
        name="pipeline.stages",
        spelled=source.text[where.start : where.end],
        value=number,
        source=source,
        key=where,
        where=where,
        whole=Span(where.start, where.start),
    )
    return Value(value=number, settings=(setting,))
