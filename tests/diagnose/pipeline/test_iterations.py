"""Files of one rank each: the shape of the pipeline told from them, or from what lies beside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from operations_made import Made

from meshwright.base.errors import InvalidInput
from meshwright.diagnose.pipeline.meta import meta_beside, size_of
from meshwright.diagnose.pipeline.read import read_pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.diagnose.pipeline.noun import Pipeline

PREFIX = {"forward-compute": "fwd", "backward-compute": "bwd"}


def write(folder: Path, made: Made, *, labels: bool = False) -> list[Path]:
    """The computes of a made run as one file a rank, milliseconds since each step began."""
    made.run()
    tid = {e["tid"]: e["args"]["name"] for e in made.events if e["ph"] == "M"}
    ranks: dict[int, dict[str, Any]] = {p: {} for p in range(made.pp)}
    begin = {n: min(_starts(made, n)) for n in range(made.steps)}
    for event in sorted((e for e in made.events if e["name"] in PREFIX), key=lambda e: e["ts"]):
        args, stage = event["args"], int(tid[event["tid"]].split()[2].rstrip(","))
        entry = ranks[stage].setdefault(str(args["step"] + 1), {"memory": 1.0})
        prefix, start = PREFIX[event["name"]], (event["ts"] - begin[args["step"]]) / 1e3
        entry.setdefault(f"{prefix}_start", []).append(start)
        entry.setdefault(f"{prefix}_end", []).append(start + event["dur"] / 1e3)
        if labels:
            entry.setdefault(f"{prefix}_chunk", []).append(args["model_chunk"])
            entry.setdefault(f"{prefix}_minibatch", []).append(args["mb_id"])
    for entries in ranks.values():
        for entry in entries.values():
            entry["total"] = max(entry["bwd_end"])
    paths = [folder / f"pp_rank_{rank}.json" for rank in ranks]
    for path, entries in zip(paths, ranks.values(), strict=True):
        path.write_text(json.dumps(entries))
    return paths


def _starts(made: Made, step: int) -> list[float]:
    return [e["ts"] for e in made.events if e["name"] in PREFIX and e["args"]["step"] == step]


def read(folder: Path, *, labels: bool = False, **given: Any) -> Pipeline:
    return read_pipeline(write(folder, Made(dp=1, transfer_us=0.0, **given), labels=labels))


@pytest.mark.parametrize(
    ("pp", "vpp", "m"), [(4, 1, 8), (4, 2, 8), (2, 3, 6), (4, 4, 4), (2, 1, 2), (8, 1, 16)]
)
@pytest.mark.parametrize("labels", [False, True])
def test_chunks_are_told_by_labels_or_by_the_warm_up(
    tmp_path: Path, pp: int, vpp: int, m: int, labels: bool
) -> None:
    pipeline = read(tmp_path, pp=pp, vpp=vpp, m=m, steps=2, labels=labels)
    assert (pipeline.p, pipeline.v, pipeline.m, pipeline.dp) == (pp, vpp, m, 1)
    assert pipeline.mean_idle_pct_of_step == pytest.approx(pipeline.ideal_bubble_pct, rel=1e-6)
    assert pipeline.replay_us == pytest.approx(pipeline.step_span_us_median, rel=1e-9)
    assert pipeline.slowdown == pytest.approx(1.0)


def test_config_json_beside_them_is_believed(tmp_path: Path) -> None:
    paths = write(tmp_path, Made(dp=1, pp=4, vpp=2, m=8, transfer_us=0.0))
    (tmp_path / "config.json").write_text('{"pp_size": 4, "vpp_size": 2, "micro_batches": 8}')
    pipeline = read_pipeline(paths)
    assert (pipeline.v, pipeline.m) == (2, 8)
    assert pipeline.meta["vpp_size"] == "2"


def test_split_backward_passes_count_as_work(tmp_path: Path) -> None:
    entry = {
        "total": 10.0,
        "fwd_start": [0.0],
        "fwd_end": [2.0],
        "bwd_start": [2.0],
        "bwd_end": [5.0],
        "wgrad_start": [6.0],
        "wgrad_end": [8.0],
    }
    path = tmp_path / "pp_rank_0.json"
    path.write_text(json.dumps({"1": entry}))
    pipeline = read_pipeline([path])
    assert pipeline.ranks["0"]["median_busy_ms"] == 7.0
    assert pipeline.compute_us_median_by_stage == {"0": pytest.approx(7e3)}


def test_ranks_are_ordered_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    paths = write(tmp_path, Made(dp=1, pp=2, m=4, transfer_us=0.0))
    renamed = [tmp_path / "pp_rank_10.json", tmp_path / "pp_rank_9.json"]
    paths[1].rename(renamed[0])
    paths[0].rename(renamed[1])
    assert list(read_pipeline(renamed).ranks) == ["9", "10"]


def test_meta_is_that_of_the_trace(tmp_path: Path) -> None:
    for name in ("ST", "AR"):
        (tmp_path / f"meta-{name}.yaml").write_text(f"trial_name: {name}\ndp_size: 4\n")
    assert meta_beside(tmp_path / "timeline-AR.json.gz") == {"trial_name": "AR", "dp_size": "4"}
    assert meta_beside(tmp_path / "timeline-XX.json.gz") == {}


@pytest.mark.parametrize(
    "text", ["[1, 2]", "a: [", "!!python/object/apply:os.system [ls]", "\x00", ""]
)
def test_hostile_meta_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta-ST.yaml").write_text(text)
    assert meta_beside(tmp_path / "timeline-ST.json") == {}


def test_sizes_are_whole_numbers() -> None:
    assert size_of({"vpp_size": "2"}, "vp_size", "vpp_size") == 2
    assert size_of({"vpp_size": "-2", "x": "1e9"}, "vpp_size", "x") == 0


@pytest.mark.parametrize("total", ["9" * 400, "-" + "9" * 400, "1e308", "1e999"])
def test_times_that_no_iteration_takes_are_refused(total: str, tmp_path: Path) -> None:
    path = tmp_path / "pp_rank_0.json"
    entry = '"fwd_start": [0], "fwd_end": [1], "bwd_start": [1], "bwd_end": [2]'
    path.write_text('{"0": {"total": ' + total + ", " + entry + "}}", encoding="utf-8")
    with pytest.raises(InvalidInput):
        read_pipeline([path])
