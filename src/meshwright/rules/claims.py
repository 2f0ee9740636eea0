"""What a file claims of memory, bandwidth or speed, against what is computed: by which factor.

Planners' and calculators' inputs state bytes a parameter, a rule for activations, bandwidths, or a
result. A statement that is off by more than a tenth is a finding (CFG211 to CFG216). Settings are
known by their names' words, since such files belong to no framework; a rule is read as a product
of numbers and names, never evaluated as code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Finding, Severity
from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.rules.costed import activation_bytes, is_laid
from meshwright.rules.estimate import peak_flops
from meshwright.rules.predicted import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from meshwright.frameworks.jobs import Drafted
    from meshwright.frameworks.reading import Reading
    from meshwright.frameworks.setting import Setting
    from meshwright.rules.figures import Figure

OFF = 1.1  # a factor that is worth a finding
_PER_PARAMETER = pattern(r"bytes?_per_param(?:eter)?s?(?:_|\.|$)")
_INTRA = pattern(r"(?:intra|inner)_?node\w*(?:bandwidth|bw)\w*|nvlink_(?:bandwidth|bw)\w*")
_INTER = pattern(r"(?:inter|outer)_?node\w*(?:bandwidth|bw)\w*|network_(?:bandwidth|bw)\w*")
_RULE = pattern(r"(?:^|[_.])(?:rule|formula|estimate|rule_of_thumb)$")
_CLAIM = pattern(
    r"(?:estimat|predict|claim|theoretical|calculat)\w*?_(?:peak_|memory_|mem_|total_|gpu_)*"
    r"(gib|gb|mib|mb)(?:_per_(?:gpu|device|card|rank))?$"
)
_PER_GIB = {"gib": 1.0, "gb": 1e9 / GIB, "mib": 1 / 1024, "mb": 1e6 / GIB}
_PEAK_RATE = pattern(r"(?:peak|theoretical)_(?:t?flops?)\w*$")
_RATE = pattern(r"(?<!peak_)(?<!theoretical_)(?:\b|_)tflops?(?:_per_s)?(?:_per_gpu|_gpu)?$")
_MFU = pattern(r"(?:^|[_.])mfu(?:_(pct|percent))?$")
_FACTOR = pattern(r"\s*(\d+(?:\.\d+)?|[A-Za-z_]\w*)\s*")
_WIDTH = pattern(r"(\d+(?:\.\d+)?)\s*bytes?(?:\s+(?:each|per))?")
_MOST_FACTORS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim: what it says, what is computed in its place, both in `unit`."""

    code: str
    stated: float
    computed: float
    unit: str
    what: str
    because: str
    settings: tuple[Setting, ...]

    @property
    def factor(self) -> float:
        """The larger of the two over the smaller."""
        return max(self.stated, self.computed) / max(min(self.stated, self.computed), 1e-30)

    @property
    def is_off(self) -> bool:
        """Whether the difference is worth saying."""
        return self.factor > OFF

    @property
    def direction(self) -> str:
        """ "too low" or "too high"."""
        return "too low" if self.stated < self.computed else "too high"


def claims(reading: Reading, drafted: Drafted, known: Mapping[str, Figure]) -> tuple[Claim, ...]:
    """Every claim of the file that can be computed; `known` are its figures."""
    stated = tuple(_settings(reading))
    found = (
        _per_parameter(stated, drafted, known),
        _activations(stated, drafted),
        _bandwidth(stated, drafted),
        _peak(stated, known),
        _peak_rate(stated, drafted),
        _utilization(stated, drafted),
    )
    return tuple(claim for claim in found if claim is not None)


def claim_findings(found: Iterable[Claim]) -> tuple[Finding, ...]:
    """A warning for every claim that is off by more than a tenth."""
    return tuple(_finding(c) for c in found if c.is_off)


def claim_figures(found: Sequence[Claim]) -> dict[str, Figure]:
    """What is claimed, and by which factor the worst claim is off."""
    named: dict[str, Figure] = {f"stated_{c.what.replace(' ', '_')}": c.stated for c in found}
    for claim in found:
        if claim.code == "CFG216":
            named["mfu"] = claim.computed
    worst = max((c.factor for c in found), default=None)
    return named if worst is None else {**named, "estimate_off_by": worst}


def _finding(claim: Claim) -> Finding:
    setting = claim.settings[0]
    label = setting.label(f"{_number(claim.stated)} {claim.unit} here")
    return Finding(
        code=claim.code,
        severity=Severity.WARNING,
        message=f"stated {claim.what} {_number(claim.stated)} {claim.unit} are "
        f"{claim.direction}: {_number(claim.computed)} {claim.unit} by the arithmetic, "
        f"{_number(claim.factor)} times {'more' if claim.direction == 'too low' else 'less'}",
        key=setting.spelled,
        value=claim.stated,
        file=label.file,
        line=label.line,
        column=label.column,
        labels=(label,),
        reason=claim.because,
        confidence="arithmetic",
    )


def _number(value: float) -> str:
    return f"{value:.4g}"


# What is stated


def _settings(reading: Reading) -> Iterator[Setting]:
    yield from reading.config.settings.values()
    yield from reading.config.unknown
    for part in reading.config.parts:
        yield from _settings(part)


def _name(setting: Setting) -> str:
    return setting.spelled.lstrip("-").replace("-", "_").lower()


def _numbers(
    settings: tuple[Setting, ...], pattern: re.Pattern[str]
) -> list[tuple[Setting, float]]:
    """Settings whose name has the pattern and whose value is a number, or a mapping of numbers."""
    found: list[tuple[Setting, float]] = []
    for setting in settings:
        if not pattern.search(_name(setting)):
            continue
        total = _total(setting.value)
        if total is not None:
            found.append((setting, total))
    return found


def _total(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Mapping):
        parts = [_total(item) for item in value.values()]
        return sum(p for p in parts if p is not None) if any(p is not None for p in parts) else None
    try:
        return float(str(value))
    except ValueError:
        return None


# One kind of claim each


def _per_parameter(
    settings: tuple[Setting, ...], drafted: Drafted, known: Mapping[str, Figure]
) -> Claim | None:
    """Bytes of states a parameter, before sharding."""
    found = _numbers(settings, _PER_PARAMETER)
    if not found:
        return None
    whole = float(known["bytes_per_parameter_unsharded"])
    sharded = known.get("bytes_per_parameter")
    over = ""
    if isinstance(sharded, int | float) and sharded != whole:
        over = f"; {_number(sharded)} with the states sharded over dp = {known.get('dp')}"
    plan = drafted.job.plan
    return Claim(
        code="CFG211",
        stated=sum(value for _, value in found),
        computed=whole,
        unit="bytes",
        what="bytes per parameter",
        because=f"Weights of {plan.param_bytes} bytes, gradients of {plan.grad_bytes}, fp32 master "
        f"weights and two fp32 moments are {_number(whole)} before sharding{over}.",
        settings=tuple(setting for setting, _ in found),
    )


def _activations(settings: tuple[Setting, ...], drafted: Drafted) -> Claim | None:
    """A rule for activations: a product of dimensions, in elements of so many bytes."""
    if {"model", "num_gpus", "seq_len"} & set(drafted.missing) or not is_laid(drafted.job):
        return None
    names = {_name(s).rsplit(".", 1)[-1]: s.value for s in settings}
    for setting in settings:
        if not (_RULE.search(_name(setting)) and isinstance(setting.value, str)):
            continue
        stated = product(setting.value, names)
        if stated is None:
            continue
        return Claim(
            code="CFG212",
            stated=stated / GIB,
            computed=activation_bytes(drafted.job) / GIB,
            unit="GiB",
            what="activations GiB",
            because="A block keeps about s*b*h*(34 + 5*a*s/h) bytes in 16 bits (arXiv 2205.05198), "
            "more with a gated MLP and unfused attention, and the logits come on top.",
            settings=(setting,),
        )
    return None


def product(rule: str, names: Mapping[str, Any]) -> float | None:
    """Bytes that "12 * hidden * batch elements, 2 bytes each" means; None for anything else."""
    width = _WIDTH.search(rule)
    head = re.split(r"\belements?\b|\bbytes?\b|,|=", rule)[0].strip()
    total = float(width[1]) if width and width.start() > len(head) else 1.0
    factors = head.split("*")
    if not 2 <= len(factors) <= _MOST_FACTORS:
        return None
    for factor in factors:
        found = _FACTOR.fullmatch(factor)
        value = _total(names.get(found[1].lower(), found[1])) if found else None
        if value is None:
            return None
        total *= value
    return total


def _bandwidth(settings: tuple[Setting, ...], drafted: Drafted) -> Claim | None:
    """The bandwidth inside nodes, where tensor parallelism leaves the node."""
    inside, between = _numbers(settings, _INTRA), _numbers(settings, _INTER)
    plan, cluster = drafted.job.plan, drafted.job.cluster
    if not (inside and between) or int(plan.tp) <= cluster.gpus_per_node:
        return None
    nodes = -(-int(plan.tp) // cluster.gpus_per_node)
    return Claim(
        code="CFG213",
        stated=inside[0][1],
        computed=between[0][1],
        unit="GB/s",
        what="bandwidth of tensor parallelism",
        because=f"A tensor-parallel group of {int(plan.tp)} ranks spans {nodes} nodes of "
        f"{cluster.gpus_per_node} GPUs, so its all-reduce must use the inter-node bandwidth.",
        settings=(inside[0][0], between[0][0]),
    )


def _peak(settings: tuple[Setting, ...], known: Mapping[str, Figure]) -> Claim | None:
    """A stated peak of memory."""
    for setting in settings:
        named = _CLAIM.search(_name(setting))
        stated = _total(setting.value) if named else None
        peak = known.get("peak_gib") if stated else None
        if named is None or stated is None or not isinstance(peak, int | float):
            continue
        return Claim(
            code="CFG214",
            stated=stated * _PER_GIB[named[1]],
            computed=float(peak),
            unit="GiB",
            what="peak GiB",
            because="The computed peak counts weights, gradients, master weights, moments, "
            "activations, logits and buffers of the fullest stage.",
            settings=(setting,),
        )
    return None


def _peak_rate(settings: tuple[Setting, ...], drafted: Drafted) -> Claim | None:
    """The peak rate that a utilization is reckoned with, against the GPU's dense one."""
    found, dense = _numbers(settings, _PEAK_RATE), _dense_tflops(drafted)
    if not found or dense is None:
        return None
    setting, stated = found[0]
    return Claim(
        code="CFG215",
        stated=stated / 1e12 if stated > _NO_TFLOPS else stated,
        computed=dense,
        unit="TFLOP/s",
        what="peak rate",
        because="Data sheets also give a rate for weights of 2:4 sparsity, twice the dense one; "
        "training does not use it.",
        settings=(setting,),
    )


def _utilization(settings: tuple[Setting, ...], drafted: Drafted) -> Claim | None:
    """A claimed utilization, against the rate that stands beside it over the dense peak."""
    rates, dense = _numbers(settings, _RATE), _dense_tflops(drafted)
    for setting in settings:
        named = _MFU.search(_name(setting))
        stated = _total(setting.value) if named else None
        if named is None or stated is None or not rates or dense is None:
            continue
        return Claim(
            code="CFG216",
            stated=stated / 100 if named[1] or stated > 1 else stated,
            computed=rates[0][1] / dense,
            unit="of the peak",
            what="utilization",
            because=f"{_number(rates[0][1])} TFLOP/s of the {_number(dense)} that "
            f"{drafted.job.cluster.gpu.name} reaches on dense products in this precision.",
            settings=(setting, rates[0][0]),
        )
    return None


_NO_TFLOPS = 1e6  # a larger number counts FLOP/s


def _dense_tflops(drafted: Drafted) -> float | None:
    """Dense peak of the job's device in its precision; None where it is not known."""
    if "gpu" in drafted.missing:
        return None
    peak = float(peak_flops(drafted.job))
    return peak / 1e12 if peak > 0 else None
