"""Whether an answer holds every quantity of an expected.json.

There are four forms: one rank's trace, a trace without device events, several ranks with what lies
between them, and a pipeline's operations. Every name in them has a rule here; what has none is
told.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tolerances import (
    Miss,
    classes,
    count_of_gaps,
    each,
    fields,
    matched,
    moment,
    percent,
    rate,
    same,
    share_of,
    time,
    told,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tolerances import Compare, Misses

WORDS = dict.fromkeys(
    (
        "name",
        "repo",
        "path",
        "commit",
        "licence",
        "sha256",
        "shows",
        "derivation",
        "format",
        "rule",
        "principal_rule",
    )
)
FILE = dict.fromkeys(
    (
        "json_bytes",
        "events",
        "device_events",
        "bad_events",
        "gpu",
        "rank",
        "world_size",
        "backend",
        "nccl_version",
    ),
    same,
)
NAME = 160  # characters of a kernel's name that are compared


def judged(folder: Path, answer: Callable[[Path], Any]) -> dict[str, Any]:
    """{trace, ok, misses, unknown} of a folder; what `answer` raises is a miss."""
    expected = json.loads((folder / "expected.json").read_text())
    unknown: set[str] = set()
    try:
        found = answer(folder)
    except Exception as error:  # whatever it is, the trace was not diagnosed
        misses = [Miss("diagnose", "an answer", f"{type(error).__name__}: {error}", "present")]
    else:
        misses = list(compared(expected, found, unknown))
    return {
        "trace": folder.name,
        "ok": not misses,
        "misses": [asdict(miss) for miss in misses],
        "unknown": sorted(unknown),
    }


def compared(expected: Mapping[str, Any], found: Any, unknown: set[str]) -> Misses:
    """What of an expected.json is missed in a record."""
    if "job" in expected:
        yield from _of_job(expected, found, unknown)
    elif {"p", "workers"} & set(expected):
        pipeline = published(found["pipeline"])
        yield from fields(_pipeline(unknown), unknown)("", _without(expected), pipeline)
        yield from principal_in_words(expected["principal"], found)
    else:
        rank = only(found.get("ranks"))
        yield from fields(_rank(unknown), unknown)("", _without(expected), rank)
        yield from file_name("file", expected["file"], rank)
        yield from _bytes("file_bytes", expected, rank)
        yield from principal(expected, found)
        yield from principal(expected, rank)


def _without(expected: Mapping[str, Any]) -> dict[str, Any]:
    """The names that one table of rules serves; files of a job had other names when measured."""
    apart = ("principal", "second", "file", "file_bytes")
    return {name: value for name, value in expected.items() if name not in apart}


def only(ranks: Any) -> Any:
    """The rank of an answer about one; None where there is not just one."""
    return ranks[0] if ranks is not None and len(ranks) == 1 else None


def file_name(key: str, expected: str, rank: Any) -> Misses:
    """Files by name, wherever they lie."""
    yield from same(key, expected, str((rank or {}).get("file", "")).rsplit("/", 1)[-1])


def principal(expected: Mapping[str, Any], found: Any) -> Misses:
    """The principal bottleneck and the runner-up, in the rules' own words."""
    if expected.get("principal") == "not_asserted":
        return
    for name in ("principal", "second"):
        if name in expected:
            yield from same(name, expected[name], (found or {}).get(name))


def principal_in_words(expected: str, found: Any) -> Misses:
    """The principal bottleneck told in a sentence, "this, then that"."""
    if found.get("principal") == expected:
        return
    clauses = re.split(r"[,;] (?:then|with) ", expected)
    for name, clause in zip(("principal", "second"), clauses, strict=False):
        word = str(found.get(name) or "")
        if not word or not re.search(SENTENCES.get(word, re.escape(word)), clause):
            yield Miss(name, clause, word, "the same thing")


SENTENCES = {
    "straggler": r"^straggler",
    "stage_imbalance": r"stage .*x the others|stage imbalance",
    "pipeline_bubble": r"^pipeline bubble",
}


# One rank


def _unions(unknown: set[str]) -> Compare:
    us = "window compute comm memory overlap_comm_compute exposed_comm exposed_memory busy idle"
    pct = "overlap_pct_of_comm compute_pct exposed_comm_pct exposed_memory_pct idle_pct"
    rules: dict[str, Compare | None] = dict.fromkeys((f"{name}_us" for name in us.split()), time)
    rules |= dict.fromkeys(pct.split(), percent)
    return fields(rules | {"start_us": moment, "name": same, "n_steps": same}, unknown)


def _step(unknown: set[str]) -> Compare:
    rules: dict[str, Compare | None] = {
        "name": same,
        "start_us": moment,
        "dur_us": time,
        "cpu_dur_us": time,
        "device_events": same,
        "device_lag_us": time,
    }
    return fields(rules, unknown)


def _rank(unknown: set[str]) -> Mapping[str, Compare | None]:
    unions, step = _unions(unknown), _step(unknown)
    return {
        **WORDS,
        **FILE,
        "no_gpu_events": same,
        "steps": each(step),
        "device_pids": each(same),
        "streams": each(same),
        "gpu_span": unions,
        "cpu_steps": each(step),
        "step_time_us_median": time,
        "step_window": unions,
        "per_step": each(unions),
        "device_steps": each(step),
        "device_step_time_us_median": time,
        "device_events_without_launch_in_trace": same,
        "device_events_launched_outside_steps": same,
        "kernel_time_sum_us": time,
        "kernel_class_sum_us": classes,
        "top_kernels": matched(lambda kernel: kernel["name"][:NAME], _kernel(unknown)),
        "idle_cause": fields(_idle_cause(), unknown),
        "cpu": each(fields(_doing(), unknown)),
        "collectives": collectives(unknown),
        "same_stream_overlap_us": time,
        "attribution": fields(_attribution(), unknown),
        "lost_shares_pct": each(percent),
        "principal_by_trace_only_rule": same,
        "gemm": fields(_gemm(unknown), unknown),
    }


def _idle_cause() -> dict[str, Compare | None]:
    parts = (
        "host_late_launch launch_latency back_to_back_under_5us device_dependency "
        "unknown_no_correlation sum"
    )
    us: dict[str, Compare | None] = dict.fromkeys((f"{part}_us" for part in parts.split()), time)
    return us | {"n_gaps": count_of_gaps, "rule": None}


def _doing() -> dict[str, Compare | None]:
    return {"count": same, "union_us": time, "gpu_idle_during_us": time}


def _attribution() -> dict[str, Compare | None]:
    return {
        "window": same,
        "window_us": time,
        "parts_us": each(time),
        "parts_pct": each(percent),
        "overlapped_comm_us": time,
        "rule": None,
    }


def _kernel(unknown: set[str]) -> Compare:
    rules: dict[str, Compare | None] = {
        "name": None,
        "sum_us": time,
        "count": same,
        "pct_of_kernel_sum": percent,
    }
    return fields(rules, unknown)


def _gemm(unknown: set[str]) -> dict[str, Compare | None]:
    shape: dict[str, Compare | None] = dict.fromkeys(("op", "batch", "m", "n", "k", "dtype"), same)
    shape |= {"count": same, "kernel_us": time, "tflops": rate}

    def named(item: Any) -> Any:
        return tuple(item[name] for name in ("op", "batch", "m", "n", "k", "dtype"))

    return {
        "ops": same,
        "ops_without_kernel": same,
        "kernel_us": time,
        "tflop": within(1e-3),
        "mean_tflops": rate,
        "shapes": matched(named, fields(shape, unknown)),
        "rule": None,
    }


COLLECTIVE = (
    "collective",
    "pg_name",
    "pg_desc",
    "pg_ranks",
    "group_size",
    "dtype",
    "in_nelems",
    "out_nelems",
)


def collectives(unknown: set[str]) -> Compare:
    """Collectives by what names them; those that only a kernel names may be told apart further."""
    rules: dict[str, Compare | None] = dict.fromkeys(COLLECTIVE, same)
    rules |= dict.fromkeys(("sum_us", "min_us", "median_us", "exposed_us"), time)
    rules |= dict.fromkeys(("busbw_GBps_at_median", "busbw_GBps_at_min"), rate)
    alike = fields(rules | {"count": same, "bytes": same}, unknown)

    def walk(key: str, expected: Any, got: Any) -> Misses:
        held = {_collective(item): item for item in reversed(got or [])}
        for number, item in enumerate(expected):
            path, named = f"{key}[{number}]", _collective(item)
            if named in held:
                yield from alike(path, item, held[named])
            elif str(item["collective"]).startswith("kernel:"):
                yield from _by_kernel(path, item, got or [])
            else:
                yield Miss(path, named, None, "present")

    return walk


def _collective(item: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(told(item.get(name)) for name in COLLECTIVE)


def _by_kernel(key: str, expected: Mapping[str, Any], got: Any) -> Misses:
    """All collectives of a kernel together, where the answer knows more of them."""
    kernel = str(expected["collective"]).removeprefix("kernel:")
    mine = [item for item in got if str(item.get("kernel", "")).startswith(kernel)]
    for name in COLLECTIVE[1:]:
        if told(expected.get(name)) is not None:
            yield Miss(f"{key}.{name}", expected[name], None, "a collective of that kind")
    yield from same(f"{key}.count", expected["count"], sum(item["count"] for item in mine))
    for name in ("sum_us", "exposed_us"):
        yield from time(f"{key}.{name}", expected[name], sum(item[name] for item in mine))
    least = min((item["min_us"] for item in mine), default=None)
    yield from time(f"{key}.min_us", expected["min_us"], least)


# Several ranks


def _of_job(expected: Mapping[str, Any], found: Any, unknown: set[str]) -> Misses:
    held = {str(rank.get("rank")): rank for rank in found.get("ranks") or []}
    rules = _rank(unknown)
    for number, rank in expected["ranks"].items():
        of = fields(rules, unknown)
        yield from of(f"ranks.{number}", _without(rank), held.get(number))
        yield from _bytes(f"ranks.{number}.file_bytes", rank, held.get(number))
    yield from each(same)("", {"world_size": expected["world_size"]}, found.get("job"))
    yield from fields(_job(unknown), unknown)("job", expected["job"], found.get("job"))
    yield from principal_in_words(expected["principal"], found)
    top = {*WORDS, "gpu", "world_size", "principal", "job", "ranks"}
    unknown |= set(expected) - top


def _bytes(key: str, expected: Mapping[str, Any], got: Any) -> Misses:
    """The size of the file that was measured: before it was compressed again, or as it lies."""
    if got is None or expected["file_bytes"] not in (got["file_bytes"], got["json_bytes"]):
        yield Miss(key, expected["file_bytes"], (got or {}).get("file_bytes"), "exact")


def _job(unknown: set[str]) -> dict[str, Compare | None]:
    met: dict[str, Compare | None] = dict.fromkeys(
        ("start_skew_us", "end_skew_us", "min_dur_us", "max_dur_us"), time
    )
    met |= {"index": same, "kernel": kernel, "last_rank": same, "wait_us": each(time)}
    return {
        **dict.fromkeys(
            ("nccl_total_us_by_rank", "wait_us_by_rank", "step_us_by_rank"), each(time)
        ),
        "wait_share_by_rank": each(share_of(1e-3)),
        "times_last": each(same),
        "straggler_rank": same,
        "transfer_us_sum_of_min": time,
        "collectives": each(fields(met, unknown)),
    }


def kernel(key: str, expected: str, got: Any) -> Misses:
    """Kernels by name without arguments."""
    yield from same(key, expected.split("(")[0], str(got).split("(")[0])


# Pipelines


def published(pipeline: Any) -> Any:
    """A pipeline with its what-ifs under the names of the published ones (arXiv 2505.05713)."""
    if not isinstance(pipeline, dict):
        return pipeline
    names = {"published_ms": "ms", "published_mw": "mw", "published_slowdown": "slowdown"}
    return pipeline | {name: pipeline.get(own) for name, own in names.items()}


def _pipeline(unknown: set[str]) -> dict[str, Compare | None]:
    simulated: dict[str, Compare | None] = dict.fromkeys(
        ("trem", "tadd", "tori", "tideal"), within(0.03)
    )
    simulated |= dict.fromkeys(("rem", "add", "Ms", "Mw"), share_of(0.05))
    worker: dict[str, Compare | None] = {
        "pp": same,
        "dp": same,
        "compute_us": time,
        "over_median": share_of(1e-3),
    }
    iteration: dict[str, Compare | None] = {"iter": same, "idle_pct": percent}
    iteration |= dict.fromkeys(("total_ms", "busy_ms", "lead_in_ms"), within(1e-3, 1e-3))
    rank: dict[str, Compare | None] = {
        **dict.fromkeys(
            ("median_total_ms", "median_busy_ms", "median_lead_in_ms"), within(1e-3, 1e-3)
        ),
        "median_idle_pct": percent,
        "memory_gb": within(1e-3),
        "iterations": each(fields(iteration, unknown)),
    }
    return {
        **WORDS,
        **dict.fromkeys(("steps", "workers", "p", "m", "v"), same),
        "meta": each(same),
        "step_span_us_median": time,
        "step_ms": within(1e-3),
        "compute_us_median_by_stage": each(time),
        "stage_max_over_mean": share_of(1e-3),
        "stage_imbalance_max_over_mean": share_of(1e-3),
        "slowest_worker": fields(worker, unknown),
        "duration_cv_within_stage": each(share_of(1e-3)),
        "compute_share_of_step_mean": share_of(1e-3),
        "op_time_sum_us": each(time),
        "ideal_bubble_pct": percent,
        "mean_idle_pct_of_step": percent,
        "ranks": each(fields(rank, unknown)),
        "published_ms": fields(simulated, unknown),
        "published_mw": fields(simulated, unknown),
        "published_slowdown": within(0.03),
    }
