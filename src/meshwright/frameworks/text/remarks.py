"""What comments say of the machine, the model and of other settings.

People write into a file what its launcher would know: "8 GPUs", "4 nodes x 8 A100 40GB",
"trainer: learning_rate=5e-5". A comment is weaker than any setting or command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import Setting, Span, Value
from meshwright.frameworks.text.comments import comments_of
from meshwright.frameworks.text.remarked import label_of, remarked_settings, told_settings

if TYPE_CHECKING:
    from meshwright.frameworks.setting import Source

_LONGEST = 400  # characters of one comment that are looked at
_COUNT = r"(?<![\w.-])(?P<{}>\d{{1,3}}(?:,\d{{3}})+|\d{{1,6}}|one|two|three|four|eight|sixteen)"
_CARD = (
    r"(?:(?:NVIDIA|AMD|GeForce|Tesla|Ascend|Huawei|Intel|RTX)[ -]?){0,3}"
    r"(?:GB[23]00|GH200|[ABH][1238]00|H20\b|H800|A800|V100|P100|B[123]00|T4\b|L4\b|L40S?|L20\b|A10G?\b"
    r"|A[346]0\b|A[56]000|A6000|RTX ?\d{4}|[2345]0[6789]0(?: ?Ti)?\b|MI[23]\d0[AX]?|910[A-D]?\d?\b"
    r"|Gaudi ?\d?)"
    r"(?:[ -]?(?:SXM\d?|PCIe?|NVL\d*))?(?:[ -/(]{0,2}\d{2,3} ?Gi?B\b)?(?:[ -]?(?:SXM\d?|PCIe?))?"
)
_UNIT = r"(?:GPU|gpu|Gpu|process|rank|proc|device|card|accelerator|NPU|worker)(?:e?s)?\b"
_NODE = r"(?:node|host|machine|server)s?\b"
_GAP = r"[ ]{0,2}"  # bounded, since several stand side by side
_TIMES = r"[ ]{0,2}(?:x|\u00d7|\*)?[ ]{0,2}"
_CARDS = rf"(?:(?P<gpu_name>{_CARD})s?)"
_PATTERNS: tuple[re.Pattern[str], ...] = tuple(
    pattern(text, re.IGNORECASE)
    for text in (
        rf"{_COUNT.format('num_nodes')}[ -]{{0,2}}{_NODE}{_GAP}"
        rf"(?:x|\u00d7|\*|of|with|by|each with|\()?{_GAP}"
        rf"{_COUNT.format('gpus_per_node')}{_TIMES}(?:{_CARDS}|{_UNIT})",
        rf"{_COUNT.format('gpus_per_node')}{_TIMES}{_CARDS}?{_GAP}(?:{_UNIT})?"
        rf"{_GAP}(?:per|/|on each|in each|on every|a){_GAP}{_NODE}",
        r"\b(?:gpus?_per_node|nproc_per_node|nproc-per-node|n_gpus_per_node|gpus per node)"
        r"[ =:]{1,3}(?P<gpus_per_node>\d{1,4})\b",
        r"\b(?:nnodes|num_nodes|n_nodes|num_machines|nodes)[ =:]{1,3}(?P<num_nodes>\d{1,5})\b",
        r"\b(?:world|world_size|world size|num_gpus|ngpus|n_gpus|num_processes|gpus)[ =:]{1,3}"
        r"(?P<num_gpus>\d{1,6})\b",
        rf"{_COUNT.format('num_gpus')}{_TIMES}{_CARDS}\b",
        rf"{_COUNT.format('num_gpus')}{_TIMES}{_UNIT}",
        rf"{_COUNT.format('num_nodes')}[ -]{{0,2}}{_NODE}",
        r"\b(?P<single>single)[ -](?:node|host|machine)\b",
        rf"(?<![\w-]){_CARDS}",
        r"\bpack(?:ed|s)?\b[^\n]{0,80}?(?<![\w.])(?P<packed_length>\d{3,7})[ ]+tokens\b",
    )
)
_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "eight": 8, "sixteen": 16}
_FAMILIES = (
    "llama|qwen|mistral|mixtral|gpt|deepseek|falcon|gemma|phi|bloom|opt|glm|chatglm|yi|internlm"
    "|baichuan|olmo|nemotron|pythia|dbrx|grok|kimi|minimax|ernie|starcoder|t5|bert|mpt|vicuna"
    "|alpaca|stablelm|granite|jamba|mamba|smollm|hunyuan|codellama|tinyllama|ministral|command-r"
)
_MODEL = pattern(
    rf"(?<![\w./-])(?:[\w.-]{{1,40}}/)?(?:Meta-)?(?:{_FAMILIES})[\w.-]*"
    r"(?: v?\d+(?:\.\d+)?(?![\w.]))?(?: \d+(?:x\d+)?(?:\.\d+)?[BM](?:-[\w.]+)*\b)?(?![\w(])",
    re.IGNORECASE,
)
_SIZE = pattern(r"(?<![\w.-])\d+(?:\.\d+)?[Bb]\b(?:[- ](?:model|parameters|params))?")
_LIKE = pattern(r"[ -]?(?:like|style|family)\b", re.IGNORECASE)  # "a DeepSeekV3-like model"
_LAUNCHER = pattern(
    r"\s*(?:torchrun|deepspeed|accelerate launch|srun|mpirun|mpiexec|python3? -m torch\.distr)"
)


@dataclass(slots=True)
class Remarks:
    """What all comments of a text say."""

    launch: dict[str, Value] = field(default_factory=dict)
    settings: list[Setting] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)


def read_remarks(source: Source) -> Remarks:
    """The facts of the launch, the model, the programs and the settings that comments state.

    Of several remarks the first counts. What a comment says of a saved checkpoint is no fact of
    this launch.
    """
    remarks = Remarks()
    for span in comments_of(source):
        short = Span(span.start, min(span.end, span.start + _LONGEST))
        label = label_of(source.text[short.start : short.end])
        remarks.settings += remarked_settings(source, short, label)
        told, others = told_settings(source, short)
        remarks.settings += told
        if label.name == "saved":
            continue
        if _LAUNCHER.match(source.text, short.start, short.end):
            _command(remarks, source, short)
        _facts(remarks, source, short, label.name, others)
        _model(remarks, source, short)
    return remarks


def _facts(remarks: Remarks, source: Source, span: Span, label: str, others: list[Span]) -> None:
    """Adds the counts and the GPU's name that a comment gives; `others` are of another run."""
    taken = list(others)
    for phrase in _PATTERNS:
        for match in phrase.finditer(source.text, span.start, span.end):
            if any(match.start() < t.end and t.start < match.end() for t in taken):
                continue
            taken.append(Span(*match.span()))
            for name, text in match.groupdict().items():
                if text:
                    where = Span(*match.span(name))
                    _add(remarks, source, *_fact(name, text, label), where)


def _fact(name: str, text: str, label: str) -> tuple[str, Any]:
    """The fact's name and value; "node: 8 GPUs" speaks of each node."""
    if name == "single":
        return "num_nodes", 1
    if name == "gpu_name":
        return name, text
    count = _WORDS.get(text.lower()) or int(text.replace(",", ""))
    per_node = name == "num_gpus" and label in ("node", "host", "machine", "server")
    return ("gpus_per_node" if per_node else name), count


def _model(remarks: Remarks, source: Source, span: Span) -> None:
    """Adds the model that a comment names, as it names it."""
    for phrase, is_model in ((_MODEL, _is_model), (_SIZE, _anything)):
        for match in phrase.finditer(source.text, span.start, span.end):
            if is_model(match.group()) and not _LIKE.match(source.text, match.end()):
                _add(remarks, source, "model_remark", match.group(), Span(*match.span()))
                return


def _is_model(text: str) -> bool:
    """Whether a word that begins like a family is a model's name and not a class's or tool's."""
    lowered = text.lower()
    if any(part in lowered for part in ("factory", ".py", "config", ".sh", "trainer", "_")):
        return False
    return any(char.isdigit() for char in text) or "-" in text


def _anything(text: str) -> bool:
    return bool(text)


def _command(remarks: Remarks, source: Source, span: Span) -> None:
    """Adds the facts of a launcher's line in a comment."""
    from meshwright.frameworks.text.shell.script import launches_in

    launch, programs = launches_in(source, span)
    for name, value in launch.items():
        remarks.launch.setdefault(name, value)
    remarks.programs += programs


def _add(remarks: Remarks, source: Source, name: str, value: Any, where: Span) -> None:
    if name in remarks.launch or value == 0:
        return
    setting = Setting(
        name=name,
        spelled=source.text[where.start : where.end],
        value=value,
        source=source,
        key=where,
        where=where,
        whole=Span(where.start, where.start),
    )
    remarks.launch[name] = Value(value=value, settings=(setting,))
