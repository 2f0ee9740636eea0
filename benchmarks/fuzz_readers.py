"""Mutates configurations and feeds them to every reader: crashes, slowest text, peak memory.

    python benchmarks/fuzz_readers.py --seconds 300 --json

Each syntax is fuzzed for `--seconds`, then each framework's reader on files written from its own
table of fields. A crash is any exception but the package's own errors. Runs are repeatable: the
mutations hang on `--seed` alone (how many are run, on the machine).
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.frameworks.setting import Source
from meshwright.frameworks.text import parse_source
from meshwright.frameworks.text.render import render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.frameworks.framework import Framework

LONGEST = 16_384  # characters of a mutated text
TOO_SLOW_S = 10.0
SYNTAXES = ("shell", "overrides", "json", "toml", "yaml", "python")
LAUNCH = {"num_nodes": 2, "gpus_per_node": 8, "environment": {"NCCL_ALGO": "Ring"}}
SETTINGS = {
    "training.seq_len": 8192,
    "training.name": "a b",
    "parallel.tp": 8,
    "parallel.layers": [1, 2, 3],
    "optimizer.lr": 1e-5,
    "optimizer.fused": True,
    "model.path": "meta-llama/Llama-3.1-8B",
}
PIECES = {
    "shell": """--a $X ${X:-1} ${X[@]} $((1+2)) $( ` ' " \\ ( ) { } ; && | if then
        else fi for in do done case esac [ ] X= X+=( ARGS=( "${ARGS[@]}" torchrun python -m
        <<EOF EOF # ${ export srun f() a.b=c""",
    "overrides": """a.b= +a ~b.c = ' " [1,2] null ${x} # $""",
    "json": """{ } [ ] , : "a" 1 -1 1e999 true null # // /* */ \\ "a":{ NaN""",
    "toml": '''a = 1 " """ [ ] [[ ]] { } , . # 07:32 true inf \\u''',
    "yaml": """a: - & &x *x << <<: { } [ ] , | > ! !!python/name:os # ' " ? --- ${a} ${.a} %""",
    "python": '''def f(): return x.y = 1 dict( a= ) { } [ ] , ** << """ # class if f(f) lambda''',
}


@dataclass
class Outcome:
    """What fuzzing one reader came to."""

    reader: str
    executions: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    slowest_text: str = ""
    crashes: list[dict[str, str]] = field(default_factory=list)
    peak_mib: float = 0.0
    growth_mib: float = 0.0


def mutated(text: str, pieces: list[str], others: list[str], dice: random.Random) -> str:
    for _ in range(dice.randint(1, 6)):
        a, b = sorted(dice.randint(0, len(text)) for _ in range(2))
        at = dice.randint(0, len(text))
        kind = dice.randrange(7)
        if kind == 0:
            text = text[:a] + text[b:]
        elif kind == 1:
            text = text[:at] + text[a:b] + text[at:]
        elif kind == 2:
            text = text[:at] + dice.choice(pieces) + text[at:]
        elif kind == 3:
            text = text[:at] + dice.choice(pieces) * dice.randint(2, 300) + text[at:]
        elif kind == 4:
            text = (
                text[:at]
                + chr(dice.choice((0, 10, 13, 32, 34, 35, 92, 255, 0x2028)))
                + text[at + 1 :]
            )
        elif kind == 5:
            text = text[:at] + dice.choice(others)[a:b]
        else:
            lines = text.split("\n")
            dice.shuffle(lines)
            text = "\n".join(lines)
        text = text[:LONGEST]
    return text


def peak_mib() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**20 if sys.platform == "darwin" else 2**10)


def fuzz(
    name: str,
    read: Callable[[str], Any],
    seeds: list[str],
    pieces: list[str],
    *,
    seconds: float,
    seed: int,
) -> Outcome:
    outcome = Outcome(name)
    dice = random.Random(f"{seed} {name}")
    before, start = peak_mib(), time.perf_counter()
    pool = list(seeds)
    while time.perf_counter() - start < seconds:
        text = mutated(dice.choice(pool), pieces, seeds, dice)
        began = time.process_time()
        try:
            read(text)
            if len(pool) < 200:  # what is read leads on to more that is
                pool.append(text)
        except MeshwrightError:
            outcome.refused += 1
        except Exception as error:
            if len(outcome.crashes) < 20:
                outcome.crashes.append({"error": repr(error)[:300], "text": text[:2000]})
        took = time.process_time() - began
        outcome.executions += 1
        if took > outcome.slowest_s:
            outcome.slowest_s, outcome.slowest_text = took, text[:2000]
    outcome.seconds = time.perf_counter() - start
    outcome.peak_mib = peak_mib()
    outcome.growth_mib = outcome.peak_mib - before
    return outcome


def seeds_of(syntax: str) -> list[str]:
    programs = ("", "train.py", "megatron sft") if syntax == "shell" else ("",)
    found = [
        render(syntax, SETTINGS, launch=LAUNCH, program=p, comments=["8 GPUs"]) for p in programs
    ]
    if syntax == "shell":
        flags = {"--" + name.replace(".", "-"): value for name, value in SETTINGS.items()}
        found.append(render(syntax, flags, launch=LAUNCH, program="pretrain_gpt.py"))
    return found


def syntax_outcomes(seconds: float, seed: int) -> Iterable[Outcome]:
    for syntax in SYNTAXES:

        def read(text: str, syntax: str = syntax) -> Any:
            return parse_source(Source(file="input", text=text, syntax=syntax))

        pieces = [*PIECES[syntax].split(), "\n", " "]
        yield fuzz(syntax, read, seeds_of(syntax), pieces, seconds=seconds, seed=seed)


def framework_seeds(framework: Framework) -> list[str]:
    samples = {"int": 2, "float": 0.5, "bool": True, "flag": True, "off-flag": True, "ints": [1, 2]}
    names = [f for f in framework.table.fields if "*" not in f.name]
    found: list[str] = []
    for start in range(0, min(len(names), 160), 40):
        settings = {
            f.name: f.default if f.default is not None else samples.get(f.type, "x")
            for f in names[start : start + 40]
        }
        try:
            found.append(render(framework.syntaxes[0], settings, launch=LAUNCH, program="train.py"))
        except MeshwrightError:  # a name that is a value and a table of values
            continue
    return found or seeds_of(framework.syntaxes[0])


def framework_outcomes(seconds: float, seed: int, part: str = "1/1") -> Iterable[Outcome]:
    """Every framework's reader and all rules on what it reads; `part` is its share of them, i/n."""
    from meshwright.api.checking import Given, check_text
    from meshwright.frameworks.framework import all_frameworks

    number, count = (int(text) for text in part.split("/"))
    endings = {"json": ".json", "toml": ".toml", "yaml": ".yaml", "python": ".py", "shell": ".sh"}
    for framework in all_frameworks()[number - 1 :: count]:
        syntax = framework.syntaxes[0]
        file = "input" + endings.get(syntax, "")

        def read(text: str, file: str = file, name: str = framework.name) -> Any:
            return check_text(text, file=file, given=Given(framework=name), compare=False)

        names = [f.name for f in framework.table.fields][:60]
        pieces = [*PIECES[syntax].split(), "\n", " ", *names]
        seeds = framework_seeds(framework)
        yield fuzz(framework.name, read, seeds, pieces, seconds=seconds, seed=seed)


def shown(outcome: Outcome) -> str:
    return (
        f"{outcome.reader:16} {outcome.executions:9,} texts  {outcome.refused:8,} refused"
        f"  {len(outcome.crashes):3} crashes  slowest {outcome.slowest_s * 1e3:8.1f} ms"
        f"  peak {outcome.peak_mib:6.0f} MiB (+{outcome.growth_mib:.0f})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each reader")
    parser.add_argument("--quick", action="store_true", help="2 seconds for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", choices=["", "syntaxes", "frameworks"])
    parser.add_argument("--part", default="1/1", help="which share of the frameworks, as 1/2")
    options = parser.parse_args()
    seconds = 2.0 if options.quick else options.seconds
    outcomes: list[Outcome] = []
    groups = {
        "syntaxes": syntax_outcomes,
        "frameworks": partial(framework_outcomes, part=options.part),
    }
    for name, group in groups.items():
        if options.only not in ("", name):
            continue
        for outcome in group(seconds, options.seed):
            outcomes.append(outcome)
            if not options.json:
                print(shown(outcome), flush=True)
                for crash in outcome.crashes[:3]:
                    print(f"    {crash['error']}\n    {crash['text'][:200]!r}")
    if options.json:
        print(json.dumps([asdict(o) for o in outcomes], indent=2))
    failed = any(o.crashes or o.slowest_s > TOO_SLOW_S for o in outcomes)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
