"""The options of a run, each with its place in the settings and the range of its values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.base.names import did_you_mean
from meshwright.base.noun import dataclass
from meshwright.base.words import shown
from meshwright.train.settings import (
    LR_SCHEDULES,
    Feed,
    Guard,
    Recipe,
    Run,
    Saving,
    Telling,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.plan.job import Job

_PARTS: Mapping[str, Any] = {
    "recipe": Recipe,
    "feed": Feed,
    "saving": Saving,
    "telling": Telling,
    "guard": Guard,
}
_MANY = 2**31 - 1
_THREADS = 4096  # of one rank: torch makes as many as it is told
_BELOW_ONE = 0.999999  # moments that never forget are none
_LARGE = 1e30  # JSON has no word for infinity
NONFINITE = ("skip", "stop")
DTYPES = ("float64", "float32", "bfloat16", "float16")
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One value of a run: the part it stands in ("" for the run itself) and its field there.

    `kind` is its type; numbers lie between `least` and `most`, `above` leaves the least one out;
    words are among `choices` where there are any. None is a value where the default is None.
    """

    part: str
    field: str
    kind: type
    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    choices: tuple[str, ...] = ()

    @property
    def default(self) -> Any:
        """What holds where nothing is given."""
        return getattr(_DEFAULTS[self.part], self.field)


_DEFAULTS = {"": Run(steps=0, out="")} | {name: kind() for name, kind in _PARTS.items()}


def _count(part: str, field: str, *, least: int = 0, most: int = _MANY) -> Option:
    return Option(part=part, field=field, kind=int, least=least, most=most)


def _number(
    part: str, field: str, *, least: float = 0.0, most: float = _LARGE, above: bool = False
) -> Option:
    return Option(part=part, field=field, kind=float, least=least, most=most, above=above)


def _text(part: str, field: str, *choices: str) -> Option:
    return Option(part=part, field=field, kind=str, choices=choices)


def _flag(part: str, field: str) -> Option:
    return Option(part=part, field=field, kind=bool)


OPTIONS: Mapping[str, Option] = {
    "steps": _count("", "steps", least=1),
    "out": _text("", "out"),
    "seed": _count("", "seed", most=2**63 - 1),
    "resume": _flag("", "resume"),
    "device": _text("", "device", *DEVICES),
    "backend": _text("", "backend"),
    "weights": _text("", "weights"),
    "schedule_table": _text("", "schedule_table"),
    "dtype": _text("", "dtype", *DTYPES),
    "compile": _flag("", "compile"),
    "deterministic": _flag("", "deterministic"),
    "threads": _count("", "threads", most=_THREADS),
    "learning_rate": _number("recipe", "learning_rate", above=True),
    "min_lr_ratio": _number("recipe", "min_lr_ratio", most=1.0),
    "lr_schedule": _text("recipe", "schedule", *LR_SCHEDULES),
    "warmup_steps": _count("recipe", "warmup_steps"),
    "decay_steps": _count("recipe", "decay_steps"),
    "weight_decay": _number("recipe", "weight_decay"),
    "beta1": _number("recipe", "beta1", most=_BELOW_ONE),
    "beta2": _number("recipe", "beta2", most=_BELOW_ONE),
    "epsilon": _number("recipe", "epsilon", above=True),
    "momentum": _number("recipe", "momentum", most=_BELOW_ONE),
    "clip_norm": _number("recipe", "clip_norm"),
    "source": _text("feed", "source"),
    "tokenizer": _text("feed", "tokenizer"),
    "document_masks": _flag("feed", "document_masks"),
    "shuffle": _flag("feed", "shuffle"),
    "prefetch": _count("feed", "prefetch", most=1 << 16),
    "evaluation": _text("feed", "evaluation"),
    "evaluate_every": _count("feed", "evaluate_every"),
    "evaluate_steps": _count("feed", "evaluate_steps", least=1),
    "checkpoint_every": _count("saving", "every_steps", least=-1),
    "keep": _count("saving", "keep", least=1),
    "keep_every": _count("saving", "keep_every"),
    "asynchronous": _flag("saving", "asynchronous"),
    "mtbf_s": _number("saving", "mtbf_s", above=True),
    "save_last": _flag("saving", "last"),
    "log_every": _count("telling", "every_steps", least=1),
    "in_place": _flag("telling", "in_place"),
    "tensorboard": _flag("telling", "tensorboard"),
    "wandb_project": _text("telling", "wandb_project"),
    "profile": Option(part="telling", field="profile", kind=tuple),
    "hang_s": _number("guard", "hang_s"),
    "grace_s": _number("guard", "grace_s", above=True),
    "nonfinite": _text("guard", "nonfinite", *NONFINITE),
    "nonfinite_limit": _count("guard", "nonfinite_limit"),
}


def run_of(job: Job, given: Mapping[str, Any]) -> Run:
    """The settings that options make; None leaves one to its default.

    Without steps the train_tokens of the job say how many. InvalidInput with every option that is
    unknown or has a value that it cannot have.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    if "steps" not in asked:
        asked["steps"] = _steps_of(job)
    findings = [finding for name, value in asked.items() for finding in _wrong(name, value)]
    if findings:
        raise InvalidInput(findings, hint=findings[0].hint)
    parts: dict[str, dict[str, Any]] = {name: {} for name in ("", *_PARTS)}
    for name, value in asked.items():
        option = OPTIONS[name]
        parts[option.part][option.field] = option.kind(value)
    own = parts.pop("")
    run = Run(**own, **{name: _PARTS[name](**values) for name, values in parts.items()})
    return _checked(run)


def _steps_of(job: Job) -> int:
    """Steps that train on as many tokens as the job says."""
    work = job.workload
    if work.train_tokens is None:
        raise MeshwrightError(
            "neither the plan nor the command says how long to train",
            hint="--steps 1000, or workload.train_tokens in the plan",
        )
    return max(math.ceil(work.train_tokens / (work.global_batch_size * work.seq_len)), 1)


def _wrong(name: str, value: Any) -> list[Finding]:
    """What is wrong with one option."""
    option = OPTIONS.get(name)
    if option is None:
        hint = did_you_mean(name, OPTIONS)
        return [Finding(message=f"{name!r} is no option of train", key=name, hint=hint)]
    reason = _why_not(option, value)
    if not reason:
        return []
    message = f"{name} = {shown(value)} {reason}"
    hint = _hint(option)
    return [Finding(message=message, key=name, value=value, reason=reason, hint=hint)]


def _hint(option: Option) -> str:
    """What to write instead: the default, where it is a value that can be given."""
    if option.default is None or option.field == "out":
        return "leave it out" if option.default is None else "--out runs/a"
    if option.kind is int and option.default < option.least:
        return f"{option.least:g} or more"
    return f"the default is {option.default}"


def _why_not(option: Option, value: Any) -> str:
    """Why an option cannot have a value, "" where it can."""
    if option.kind is tuple:
        return _why_no_window(value)
    if not _is_of(option.kind, value):
        words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        return f"is not {words[option.kind]}"
    if value == "":
        return "is empty"
    if option.choices and value not in option.choices:
        return f"is none of {', '.join(option.choices)}"
    return "" if option.kind in (str, bool) else _why_no_number(option, value)


def _is_of(kind: type, value: Any) -> bool:
    """Whether a value is of a kind; a truth value is no number."""
    kinds = (int, float) if kind is float else (kind,)
    return isinstance(value, kinds) and (kind is bool or not isinstance(value, bool))


def _why_no_number(option: Option, value: float) -> str:
    if value != value or not option.least <= value <= option.most:
        return f"is not between {option.least:g} and {option.most:g}"
    return f"is not above {option.least:g}" if option.above and value == option.least else ""


def _why_no_window(value: Any) -> str:
    is_pair = isinstance(value, tuple | list) and len(value) == 2
    if not is_pair or not all(type(number) is int for number in value):
        return "is no first and last step"
    return "" if 1 <= value[0] <= value[1] else "is no window: 1 <= first <= last"


def _checked(run: Run) -> Run:
    """The settings, if they go together."""
    recipe, findings = run.recipe, []
    if recipe.warmup_steps + recipe.decay_steps > run.steps:
        message = (
            f"{recipe.warmup_steps} steps of warm-up and {recipe.decay_steps} of decay are more "
            f"than the run's {run.steps}"
        )
        findings.append(Finding(message=message, key="warmup_steps", hint="fewer of them"))
    if recipe.schedule == "wsd" and not recipe.decay_steps:
        hint = f"decay_steps = {max(run.steps // 10, 1)}, a tenth of the run"
        message = "wsd falls over the last decay_steps, of which there are none"
        findings.append(Finding(message=message, key="decay_steps", value=0, hint=hint))
    window = run.telling.profile
    if window is not None and window[0] > run.steps:
        message = f"step {window[0]} to profile is beyond the run's {run.steps}"
        findings.append(
            Finding(message=message, key="profile", value=window, hint="an earlier window")
        )
    if findings:
        raise InvalidInput(findings, hint=findings[0].hint)
    return run
