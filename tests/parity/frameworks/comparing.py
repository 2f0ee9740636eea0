"""Random configurations, judged by a framework's own code and by `check`, compared.

A `Subject` draws configurations in a framework's own words, writes each as the file that meshwright
reads, and judges it by the framework's constructors and validators. Predictions of memory and time
are left out, since no constructor knows them.
"""

from __future__ import annotations

import logging
import random
import re
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from meshwright.api import cluster
from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Severity
from meshwright.frameworks.read import read_text
from meshwright.rules.lint import lint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from meshwright.base.finding import Finding
    from meshwright.hardware.cluster import Cluster

Config = dict[str, Any]
_NUMBER = re.compile(r"\d+")
_BLANKS = re.compile(r"\s+")
PER_NODE = 8
_WORDS = 70  # characters of a framework's message that tell its kind


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One framework's checks under comparison.

    A configuration's "gpus" is the number of GPUs it runs on; `check` is told it, as by `--gpus`.
    `judge` raises what the framework raises. `later` are the codes of rules whose error the
    framework raises elsewhere than where `judge` looks, each with where; `accepted` are kinds of
    disagreement (a pattern of `Disagreement.kind`) that are meant, each with the reason.
    """

    name: str
    framework: str
    version: str
    file: str
    draw: Callable[[random.Random], Config]
    text: Callable[[Config], str]
    judge: Callable[[Config], None]
    later: Mapping[str, str] = field(default_factory=dict)
    accepted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A configuration on which the two differ; `kind` is the codes of ours or their message."""

    kind: str
    text: str
    ours: tuple[str, ...] = ()
    theirs: str = ""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Counts of agreement over random configurations, and each disagreement."""

    subject: Subject
    plans: int
    both_refuse: int
    both_accept: int
    disagreements: tuple[Disagreement, ...]

    @property
    def agreement(self) -> float:
        """Share of configurations on which both say the same."""
        return 1 - len(self.disagreements) / max(self.plans, 1)

    @property
    def kinds(self) -> dict[str, list[Disagreement]]:
        """Disagreements by kind, the most frequent first."""
        counts = Counter(d.kind for d in self.disagreements)
        ordered = [kind for kind, _ in counts.most_common()]
        return {kind: [d for d in self.disagreements if d.kind == kind] for kind in ordered}

    @property
    def unexplained(self) -> dict[str, list[Disagreement]]:
        """The kinds that the subject does not list with a reason."""
        return {kind: found for kind, found in self.kinds.items() if not self.reason(kind)}

    def reason(self, kind: str) -> str:
        """Why a kind of disagreement is meant, "" where it is not."""
        listed = self.subject.accepted.items()
        return next((why for pattern, why in listed if re.search(pattern, kind)), "")


def compare(subject: Subject, *, plans: int, seed: int) -> Comparison:
    """Judges `plans` random configurations twice; the same seed draws the same ones."""
    rng = random.Random(f"{subject.name} {seed}")
    refused = accepted = 0
    found: list[Disagreement] = []
    for _ in range(plans):
        config = subject.draw(rng)
        text = subject.text(config)
        ours, theirs = errors(subject, text, gpus=config["gpus"]), refusal(subject, config)
        if bool(ours) == bool(theirs):
            refused += bool(ours)
            accepted += not ours
        else:
            found.append(_disagreement(text, ours, theirs))
    return Comparison(
        subject=subject,
        plans=plans,
        both_refuse=refused,
        both_accept=accepted,
        disagreements=tuple(found),
    )


def _disagreement(text: str, ours: list[Finding], theirs: str) -> Disagreement:
    codes = sorted({f.code for f in ours})
    kind = f"only we refuse: {' '.join(codes)}" if ours else f"only they refuse: {kind_of(theirs)}"
    messages = tuple(f"{f.code}: {f.message}" for f in ours)
    return Disagreement(kind=kind, text=text, ours=messages, theirs=theirs)


def kind_of(refusal_: str) -> str:
    """A framework's message without its numbers, cut short."""
    return _NUMBER.sub("#", _BLANKS.sub(" ", refusal_))[:_WORDS].strip()


def errors(subject: Subject, text: str, *, gpus: int) -> list[Finding]:
    """What `check` has against a text at error level, predictions and later refusals left out."""
    try:
        reading = read_text(
            text, file=subject.file, framework=subject.framework, version=subject.version
        )
    except InvalidInput as error:
        return list(error.findings)
    linted = lint(reading, cluster=machine(gpus), predict=False, edits=False)
    return [
        f for f in linted.findings if f.severity is Severity.ERROR and f.code not in subject.later
    ]


@cache
def machine(gpus: int) -> Cluster:
    """A cluster of the newest GPUs, which have every precision."""
    nodes = -(-gpus // PER_NODE)
    return replace(cluster(f"B200:{PER_NODE}", nodes=max(nodes, 1)), num_gpus=gpus)


def refusal(subject: Subject, config: Config) -> str:
    """What the framework raises on a configuration, "" where it takes it."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            subject.judge(config)
    except (Exception, SystemExit) as error:  # whatever it raises
        return f"{type(error).__name__}: {str(error) or _raised_in(error)}"
    finally:
        logging.disable(logging.NOTSET)
    return ""


def _raised_in(error: BaseException) -> str:
    """The line that raised an error without a message."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].name}: {frames[-1].line}" if frames else ""


def perturbed(
    rng: random.Random, base: Config, changes: Mapping[str, tuple[Any, ...]], *, most: int = 2
) -> Config:
    """`base` with up to `most` of its values replaced by others that `changes` offers."""
    names = rng.sample(sorted(changes), rng.randint(0, most))
    return {**base, **{name: rng.choice(changes[name]) for name in names}}


def report(comparison: Comparison, *, examples: int = 1) -> dict[str, Any]:
    """A comparison as plain data."""
    return {
        "plans": comparison.plans,
        "both_refuse": comparison.both_refuse,
        "both_accept": comparison.both_accept,
        "only_we_refuse": sum(bool(d.ours) for d in comparison.disagreements),
        "only_they_refuse": sum(not d.ours for d in comparison.disagreements),
        "agreement": round(comparison.agreement, 4),
        "disagreements": list(_kinds(comparison, examples)),
    }


def _kinds(comparison: Comparison, examples: int) -> Iterator[dict[str, Any]]:
    for kind, found in comparison.kinds.items():
        yield {
            "kind": kind,
            "times": len(found),
            "reason": comparison.reason(kind),
            "examples": [
                {"text": d.text, "ours": list(d.ours), "theirs": d.theirs} for d in found[:examples]
            ],
        }
