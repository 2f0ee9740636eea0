"""Whether an answer is the one that a case expects: the verdict, what it is about, and numbers.

A verdict alone does not count. Where a case names a rule, one finding must speak of the things that
the rule speaks of; where it names a bottleneck, a finding or the largest share of the step must be
it; every number must stand in the product's figures. Nothing here knows a case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from answer import Answer, meanings_of, words_of

GIB = 2.0**30
TOLERANCE = 0.02  # of a number for which a case states none
COVERED = 0.5  # of the concepts of a rule that one finding must speak of


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Right or not, and why not."""

    ok: bool
    why: str = ""


def judge(expected: Mapping[str, Any], answer: Answer) -> Judgement:
    """The first thing that is not as expected."""
    if answer.error:
        return Judgement(ok=False, why=f"no answer: {answer.error}")
    verdict = str(expected.get("verdict"))
    check = VERDICTS.get(verdict)
    if check is None:
        return Judgement(ok=False, why=f"verdict {verdict!r} is not known")
    for why in (check(expected, answer), *numbers(expected, answer)):
        if why:
            return Judgement(ok=False, why=why)
    return Judgement(ok=True)


# Verdicts: each returns why an answer is not it, "" if it is


def _error(expected: Mapping[str, Any], answer: Answer) -> str:
    return _said(expected, answer.of("error"), answer, "no error")


def _silent_wrong(expected: Mapping[str, Any], answer: Answer) -> str:
    """An error, or a warning that says that the result is wrong."""
    warned = [f for f in answer.of("warning") if "silent_wrong" in meanings_of(f)]
    return _said(expected, [*answer.of("error"), *warned], answer, "neither refused nor warned")


def _hang(expected: Mapping[str, Any], answer: Answer) -> str:
    hanging = [f for f in answer.of("error", "warning") if "hang" in meanings_of(f)]
    return _said(expected, hanging, answer, "no hang predicted")


def _warn(expected: Mapping[str, Any], answer: Answer) -> str:
    if answer.of("error"):
        return f"refused: {_messages(answer.of('error'))}"
    return _said(expected, answer.of("warning"), answer, "no warning")


def _accepted(expected: Mapping[str, Any], answer: Answer) -> str:
    return f"refused: {_messages(answer.of('error'))}" if answer.of("error") else ""


def _oom(expected: Mapping[str, Any], answer: Answer) -> str:
    """Memory must be what is short; a plan that is nearly full is a warning, and counts as such."""
    short = [f for f in answer.of("error", "warning") if "oom" in meanings_of(f)]
    if not short:
        return "memory is not said to be short"
    if str(expected.get("resource", "")).startswith("host") and not any(
        "host" in words_of(f).lower() for f in short
    ):
        return "host memory is not said to be short"
    return _others_refuse(answer, short)


def _slow(expected: Mapping[str, Any], answer: Answer) -> str:
    named = str(expected.get("bottleneck", ""))
    wanted = concepts(named)
    slow = [f for f in answer.findings if f["severity"] in ("error", "warning", "info")]
    best = max((covered(wanted, words_of(f)) for f in slow), default=0.0)
    if best < COVERED:
        limit = str(answer.figures.get("bottleneck", ""))
        return f"bottleneck {named} not named; largest share: {limit or 'not predicted'}"
    return _accepted(expected, answer)


def _estimate_wrong(expected: Mapping[str, Any], answer: Answer) -> str:
    """A finding contradicts the estimate, or the right numbers stand in the figures.

    The input often does not state the estimate; what the user needs then is the right number.
    """
    contradicts = [f for f in answer.of("error", "warning", "info") if _contradicts(f)]
    ours = [k for k, v in expected.items() if _is_number(v) and not THEIRS.match(k)]
    return "" if contradicts or ours else "the stated estimate is not contradicted"


def _contradicts(finding: Mapping[str, Any]) -> bool:
    said = words_of(finding).lower()
    return any(word in said for word in ("estimate", "stated", "claim", "rule of thumb")) and any(
        word in said for word in ("too low", "too high", "more than", "less than", "times")
    )


def _info(expected: Mapping[str, Any], answer: Answer) -> str:
    asked = list(numbers(expected, answer))
    return "" if asked or "rule" in expected else "the answer is in words only"


VERDICTS: Mapping[str, Callable[[Mapping[str, Any], Answer], str]] = {
    "error": _error,
    "silent_wrong": _silent_wrong,
    "hang": _hang,
    "warn": _warn,
    "ok": _accepted,
    "fits": _accepted,
    "oom": _oom,
    "slow": _slow,
    "estimate_wrong": _estimate_wrong,
    "info": _info,
}


def _messages(findings: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(f"{f['code']} {f['message']}" for f in findings)[:300]


def _others_refuse(answer: Answer, said: Iterable[Mapping[str, Any]]) -> str:
    """A plan that ran into its memory limit did start: no other error may refuse it."""
    codes = {f["code"] for f in said}
    others = [f for f in answer.of("error") if f["code"] not in codes]
    return f"refused for another reason: {_messages(others)}" if others else ""


def _said(
    expected: Mapping[str, Any],
    findings: Iterable[Mapping[str, Any]],
    answer: Answer,
    nothing: str,
) -> str:
    """One of the findings must speak of what the case's rule speaks of."""
    found = list(findings)
    if not found:
        others = _messages(answer.of("error", "warning"))
        return f"{nothing}; findings: {others}" if others else nothing
    rule = " ".join(str(expected.get(name, "")) for name in ("rule", "check"))
    wanted = concepts(str(expected.get("rule", ""))) or concepts(rule)
    if not wanted:
        return ""
    best = max(found, key=lambda f: covered(wanted, words_of(f)))
    if covered(wanted, words_of(best)) >= COVERED:
        return ""
    return f"about something else ({', '.join(sorted(wanted))} wanted): {_messages(found)}"


# Concepts: the words of the field, whatever their spelling

CONCEPTS: Mapping[str, str] = {
    "pipeline": r"pp|pipeline\w*|stages?|1f1b|virtual[ _-](?:pipeline[ _-])?stages?",
    "interleaving": r"interleav\w*|vpp|virtual\w*|chunks?|layers_per_virtual_stage",
    "tensor": r"tp|tensor[ _-](?:model[ _-])?parallel\w*|tensor_parallel\w*|sharded over tp",
    "context": r"cp|context[ _-]parallel\w*|ulysses|ring attention",
    "sequence_parallel": r"sequence[ _-]parallel\w*|sp",
    "data_parallel": r"dp|data[ _-]parallel\w*|replicas?|ddp",
    "shard": r"dp_shard|fsdp\w*|zero\w*|shard\w*|reshard\w*",
    "replicate": r"dp_replicate|hsdp|replicat\w*",
    "expert": r"ep|etp|experts?|moe|expert[ _-]\w*parallel\w*",
    "world": r"world\w*|num_gpus|gpus?|ranks?|processes|mesh",
    "layers": r"layers?|num_layers|num_hidden_layers|depth",
    "heads": r"heads?|kv|n_kv_heads|num_attention_heads|num_key_value_heads",
    "vocabulary": r"vocab\w*|embedding rows|logits?",
    "padding": r"pad\w*|divisib\w*|multiples?|divides?|divisor",
    "batch": r"batch\w*|gbs|mbs|samples|prompts|micro|mini",
    "micro_batch": r"micro[ _-]?batch\w*|micro[ _-]?steps?|accumulat\w*|microbatch\w*",
    "sequence": r"seq|seq_len\w*|sequences?|tokens?|lengths?",
    "checkpoint": r"checkpoint\w*|save[sd]?|saving|resum\w*|load(?:ed|ing)?|state[ _]dict\w*",
    "optimizer": r"optimi[sz]er\w*|adam\w*|moments?|states?",
    "gradient": r"grad\w*|reduc\w*|all-?reduce",
    "loss": r"loss\w*|normali[sz]ation|objective",
    "tied": r"tied|tie_\w+|share[sd]?|untie\w*",
    "wrap": r"wrap\w*|layer[ _]cls\w*|layer class|module class",
    "precision": r"fp8|mxfp8|nvfp4|fp16|bf16|fp32|precision|quanti\w*|dtype\w*|recipe",
    "learning_rate": r"lr|learning[ _]rate\w*|warm-?up\w*|schedul\w*",
    "bandwidth": r"bandwidth\w*|gb/s|links?|nvlink|network|ethernet|infiniband|rdma|slow link",
    "inter_node": r"inter[ _-]?node\w*|across nodes|between nodes|nodes|network|ethernet",
    "intra_node": r"intra[ _-]?node\w*|inside (?:a|the|one) node|pcie|within a node",
    "pcie": r"pcie",
    "gather": r"all-?gather\w*|gather\w*|collect\w*",
    "parameter": r"parameters?|params?|weights?",
    "collective": r"collectives?|all-?(?:reduce|gather|to-?all)\w*|reduc\w*|communicat\w*",
    "message": r"messages?|buckets?|latency|small",
    "bubble": r"bubble\w*|idle",
    "imbalance": r"imbalanc\w*|unequal|uneven\w*|balanc\w*|slowest|unbalanced",
    "embedding": r"embedding\w*|head|output projection|vocab\w*",
    "recompute": r"recompute\w*|activation checkpoint\w*|gradient_checkpointing",
    "memory": r"memory|gib|out of memory|oom",
    "host": r"host\w*|cpu\w*|ram",
    "offload": r"offload\w*",
    "data_loading": r"loader\w*|dataloader\w*|workers?|data loading|storage|disk",
    "synchronous": r"synchronous\w*|sync|async\w*|stands still|stall\w*",
    "full": r"full\w*|whole",
    "overlap": r"overlap\w*|p2p|send\w*|hand-?overs?",
    "dispatch": r"dispatch\w*|route\w*|routing|top-?k|token\w*",
    "aux_loss": r"aux\w*|tracker|balancing",
    "mtp": r"mtp\w*|multi-token",
    "converter": r"convert\w*|conversion|saver|loader",
    "metrics": r"metrics?|log\w*|reported",
    "version": r"versions?|older|newer|since|before|fixed in",
    "format": r"format\w*|reshardable|dp_reshardable|fully_reshardable",
    "unit": r"units?|prompts|trajector\w*",
    "steps": r"steps?|iterations?|every",
}
_COMPILED = {n: re.compile(rf"(?<![a-z0-9])(?:{p})(?![a-z0-9])") for n, p in CONCEPTS.items()}


def concepts(text: str) -> set[str]:
    """The concepts that a text speaks of; snake_case is read as words too."""
    lowered = text.lower()
    spread = f"{lowered} {lowered.replace('_', ' ')}"
    return {name for name, pattern in _COMPILED.items() if pattern.search(spread)}


def covered(wanted: set[str], text: str) -> float:
    """The share of the wanted concepts that a text speaks of."""
    return len(wanted & concepts(text)) / len(wanted) if wanted else 1.0


# Numbers: expected keys by pattern, and the figures that may hold them


@dataclass(frozen=True, kw_only=True)
class Number:
    """Figures for an expected key: the first that exists is compared, in the key's unit."""

    figures: tuple[str, ...]
    unit: float = 1.0
    at_least: bool = False


GB, MB = 1e9, 1e6
NUMBERS: tuple[tuple[str, Number], ...] = (
    (
        r"predicted_peak_gib_at_least",
        Number(figures=("memory.most_bytes", "memory.required_bytes"), unit=GIB, at_least=True),
    ),
    (
        r"predicted_host_gb_at_least",
        Number(figures=("host.peak_bytes",), unit=GB, at_least=True),
    ),
    (r"observed_peak_gib", Number(figures=("memory.device_bytes",), unit=GIB)),
    (r"observed_after_init_gib", Number(figures=("memory.load_device_bytes",), unit=GIB)),
    (r"observed_(activation_)?gi?b", Number(figures=("memory.activations_bytes",), unit=GIB)),
    (r"observed_host_gb", Number(figures=("host.peak_bytes",), unit=GB)),
    (r"predicted_s_per_iter", Number(figures=("step_time_s",))),
    (r"mfu", Number(figures=("mfu",))),
    (r"(predicted_)?tokens_per_s_per_gpu|tok_s_gpu", Number(figures=("tokens_per_s_per_gpu",))),
    (r"size_tb", Number(figures=("checkpoint_bytes",), unit=1e12)),
    (r"(checkpoint_)?size_gb", Number(figures=("checkpoint_bytes",), unit=GB)),
    (r"disk_bound_s", Number(figures=("checkpoint_write_s",))),
    (r"logits_fp32_gib(_at_\d+)?", Number(figures=("logits_fp32_bytes",), unit=GIB)),
    (r"(logits_)?bf16_mb", Number(figures=("logits_bf16_bytes",), unit=MB)),
    (r"(logits_)?fp32_mb", Number(figures=("logits_fp32_bytes",), unit=MB)),
    (r"correct_bytes_dp1", Number(figures=("bytes_per_parameter_unsharded",))),
    (r"correct_bytes_dp\d+", Number(figures=("bytes_per_parameter",))),
    (r"tool_bytes", Number(figures=("stated_bytes_per_parameter",))),
    (r"(rule|tool)_gib", Number(figures=("stated_estimate_gib", "stated_estimate_bytes"))),
    (
        r"better_gib_at_least",
        Number(figures=("memory.activations_bytes", "activations_bytes"), unit=GIB, at_least=True),
    ),
    (r"overestimate_factor", Number(figures=("estimate_off_by",))),
    (r"dp", Number(figures=("dp",))),
    (r"samples_per_iteration", Number(figures=("samples_per_iteration",))),
    (r"samples_per_step", Number(figures=("samples_per_step",))),
    (r"updates_per_step", Number(figures=("updates_per_step",))),
    (r"accumulation_steps", Number(figures=("accumulation_steps",))),
    (r"num_microbatches", Number(figures=("num_microbatches",))),
    (r"layers_built", Number(figures=("layers_built",))),
    (r"max_ep", Number(figures=("max_ep",))),
    (r"expert_dp", Number(figures=("expert_dp",))),
    (r"experts_per_rank(_per_layer)?", Number(figures=("experts_per_rank",))),
    (r"minimal_divisor|padding_to", Number(figures=("sequence_divisor",))),
    (r"padded", Number(figures=("padded_vocab_size",))),
    (r"min_world|world_needed", Number(figures=("least_gpus", "mesh_product"))),
    (r"speedup_over_tp\d+_at_least", Number(figures=(), at_least=True)),
    (r"speed_ratio", Number(figures=("speed_against_nvlink",))),
    (r"ratio", Number(figures=("speedup_unsharded", "metrics_ratio"))),
    (r"gbs(_\w)?", Number(figures=("global_batch_size",))),
)
LISTS = {"valid_tp": "valid_tp"}
THEIRS = re.compile(
    r"(tool|rule|their)_|tolerance$"
)  # what the wrong estimate says, not the answer
MEASURED = re.compile(r"(slowdown_|speed_)?ratio|observed_\w+|mfu")
OF_THE_RUN = re.compile(r"(effective|implied|measured|actual)_\w+|\w+_in_failing_\w+")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def not_compared(expected: Mapping[str, Any]) -> list[str]:
    """Numbers that are left out: the wrong estimate's own, measurements without a tolerance.

    Also what was worked out from the run's own measurements, which no input states.
    """
    loose = "tolerance" not in expected
    numeric = [k for k, v in expected.items() if _is_number(v) and k != "tolerance"]
    return [
        k
        for k in numeric
        if THEIRS.match(k) or OF_THE_RUN.fullmatch(k) or (loose and MEASURED.fullmatch(k))
    ]


def numbers(expected: Mapping[str, Any], answer: Answer) -> Iterable[str]:
    """For every number that is expected, why it is not met ("" if it is)."""
    tolerance = float(expected.get("tolerance", TOLERANCE))
    left_out = {"tolerance", *not_compared(expected)}
    for key, value in expected.items():
        if key == "fits":
            yield _fits(bool(value), answer)
        elif key.startswith("fits_by_") and isinstance(value, Mapping):
            yield from (_fits_on(key, n, bool(v), answer) for n, v in value.items())
        elif key in LISTS:
            yield _listed(key, value, answer)
        elif key == "padded" and isinstance(value, Mapping):
            yield _padded(value, answer)
        elif _is_number(value) and key not in left_out:
            yield _number(key, float(value), answer, tolerance)


def _fits(expected: bool, answer: Answer) -> str:
    said = answer.figures.get("fits")
    if said is None:
        return "whether it fits is not said"
    return "" if (said == "yes") == expected or (expected and said == "tight") else f"fits: {said}"


def _fits_on(key: str, degree: Any, expected: bool, answer: Answer) -> str:
    axis = key.removeprefix("fits_by_")
    name = f"fits_on_{degree}_gpus" if axis == "gpus" else f"fits_with_{axis}_{degree}"
    said = answer.figures.get(name)
    least = answer.figures.get("least_gpus_that_fit")
    if said is None and axis == "gpus" and isinstance(least, int):
        said = "yes" if int(degree) >= least else "no"  # more replicas share the states
    return "" if said is not None and (said != "no") == expected else f"{name}: {said}"


def _listed(key: str, value: Any, answer: Answer) -> str:
    said = str(answer.figures.get(LISTS[key], "")).split()
    return "" if said == [str(v) for v in value] else f"{key}: {said or 'not said'}"


def _padded(value: Mapping[Any, Any], answer: Answer) -> str:
    said = {v for n, v in answer.figures.items() if n.startswith("padded_vocab_size")}
    missing = set(value.values()) - said
    return f"padded vocabulary {sorted(missing)} not said" if missing else ""


UNITS: Mapping[str, float] = {"gib": GIB, "gb": GB, "mb": MB, "mib": 2.0**20, "tb": 1e12}
SCALES: Mapping[str, float] = {"pct": 0.01, "percent": 0.01, "ms": 0.001, "tib": 2.0**40}
FILLERS = frozenset({"predicted", "observed", "expected", "at", "least", "correct", "total", "per"})


def by_words(key: str, figures: Mapping[str, Any]) -> Number:
    """The figure whose name has all words of a key, the shortest of several; units converted."""
    words = set(key.split("_")) - FILLERS
    unit = next((w for w in words if w in UNITS or w in SCALES), "")
    wanted = words - {unit} | ({"bytes"} if unit in UNITS or unit == "tib" else set())
    fitting = [name for name in figures if wanted <= set(re.split(r"[_.]", name))]
    scale = UNITS.get(unit) or SCALES.get(unit) or 1.0
    least = key.endswith("_at_least")
    named = min(fitting, key=len, default=key)
    return Number(figures=(named,), unit=scale, at_least=least)


def _in_words(key: str, value: float, answer: Answer, tolerance: float) -> bool:
    """Whether a warning or error says the number itself: a count, or "2.0 times" of a ratio."""
    said = " ".join(str(f["message"]) for f in answer.of("error", "warning"))
    if key.startswith("count_"):
        return any(float(n) == value for n in re.findall(r"(?<![\d.])\d+(?![\d.])", said))
    if re.fullmatch(r"(\w+_)?(ratio|factor)", key):
        times = re.findall(r"(\d+(?:\.\d+)?) times", said)
        return any(abs(float(n) - value) <= tolerance * abs(value) for n in times)
    return False


def _number(key: str, value: float, answer: Answer, tolerance: float) -> str:
    number = next((n for pattern, n in NUMBERS if re.fullmatch(pattern, key)), None)
    if number is None:
        number = by_words(key, answer.figures)
    names = number.figures or (key.removesuffix("_at_least"),)
    said = next((answer.figures[n] for n in names if n in answer.figures), None)
    if not isinstance(said, int | float):
        return "" if _in_words(key, value, answer, tolerance) else f"{key} is not said"
    here = said / number.unit
    right = here >= value if number.at_least else abs(here - value) <= tolerance * abs(value)
    return "" if right else f"{key}: {here:.4g}, expected {value:g}"
