"""Snapshots of the allocator: the peak, its moment and what it was made of."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.diagnose.logs.categories import Frame, category_of, site_of
from meshwright.diagnose.logs.memory import read_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.diagnose.logs.noun import MemorySnapshot

MIB = 1 << 20
WEIGHT = [("/app/model.py", 12, "__init__"), ("/app/train.py", 3, "<module>")]
FORWARD = [
    ("/lib/torch/nn/functional.py", 9, "linear"),
    ("/lib/torch/nn/modules/linear.py", 134, "forward"),
    ("/lib/torch/nn/modules/module.py", 1751, "_call_impl"),
    ("/app/model.py", 40, "forward"),
    ("/app/train.py", 20, "main"),
]
ADAM = [("/lib/torch/optim/adamw.py", 90, "_init_group"), ("/app/train.py", 25, "main")]
GATHER = [
    ("/lib/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 1, "foreach_all_gather"),
    ("/app/model.py", 40, "forward"),
]
RECOMPUTED = [
    *FORWARD[:4],
    ("/lib/torch/utils/checkpoint.py", 1100, "recompute_fn"),
    ("/lib/torch/_tensor.py", 600, "backward"),
]


def frames(stack: list[tuple[str, int, str]]) -> list[dict[str, Any]]:
    return [{"filename": f, "line": n, "name": name} for f, n, name in stack]


def event(action: str, addr: int, size: int, time_us: int, stack: Any = ()) -> dict[str, Any]:
    made = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us}
    return made | {"frames": frames(list(stack))}


def snapshot() -> dict[str, Any]:
    """Weights, two activations, a gradient of the backward thread, optimizer states; peak at 7."""
    trace = [
        event("segment_alloc", 0, 20 * MIB, 1),
        event("alloc", 0, 4 * MIB, 2, WEIGHT),
        event("alloc", 4 * MIB, 3 * MIB, 3, FORWARD),
        event("alloc", 8 * MIB, 2 * MIB, 4, FORWARD),
        event("alloc", 10 * MIB, MIB, 5, GATHER),
        event("alloc", 12 * MIB, 4 * MIB, 6),
        event("free_requested", 10 * MIB, MIB, 7),
        event("free_completed", 10 * MIB, MIB, 7),
        event("free_requested", 8 * MIB, 2 * MIB, 8),
        event("free_completed", 8 * MIB, 2 * MIB, 8),
        event("free_requested", 4 * MIB, 3 * MIB, 9),
        event("free_completed", 4 * MIB, 3 * MIB, 9),
        event("alloc", 4 * MIB, 2 * MIB, 10, ADAM),
    ]
    blocks = [
        (0, 4 * MIB, "active_allocated", WEIGHT),
        (4 * MIB, 2 * MIB, "active_allocated", ADAM),
        (6 * MIB, 6 * MIB, "inactive", []),
        (12 * MIB, 4 * MIB, "active_allocated", []),
        (16 * MIB, 4 * MIB, "inactive", []),
    ]
    segment = {
        "device": 0,
        "address": 0,
        "total_size": 20 * MIB,
        "allocated_size": 10 * MIB,
        "active_size": 10 * MIB,
        "blocks": [
            {"address": a, "size": s, "requested_size": s, "state": state, "frames": frames(stack)}
            for a, s, state, stack in blocks
        ],
    }
    settings_ = {"expandable_segments": False, "max_split_size": -1}
    return {"segments": [segment], "device_traces": [trace], "allocator_settings": settings_}


def read(folder: Path, document: Any, name: str = "snap.json") -> MemorySnapshot:
    path = folder / name
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    return read_snapshot(path)


def test_the_peak_its_moment_and_its_parts(tmp_path: Path) -> None:
    found = read(tmp_path, snapshot())
    assert (found.device, found.peak_bytes, found.peak_at_us) == (0, 14 * MIB, 6)
    assert found.reserved_bytes == 20 * MIB
    assert found.by_category == {
        "activations": 5 * MIB,
        "weights": 4 * MIB,
        "gradients": 4 * MIB,
        "communication": MIB,
    }
    assert sum(found.by_category.values()) == found.peak_bytes
    assert dict(found.by_site)["app/model.py:40 forward"] == 6 * MIB
    assert found.fragmentation == pytest.approx(6 / 20)
    assert (found.retries, found.ooms, found.allocations, found.history) == (0, 0, 6, True)
    assert found.settings["max_split_size"] == "-1"


def test_a_history_that_begins_in_the_middle(tmp_path: Path) -> None:
    document = snapshot()
    document["device_traces"][0] = document["device_traces"][0][4:]
    found = read(tmp_path, document)
    assert (found.peak_bytes, found.peak_at_us) == (14 * MIB, 6)
    assert found.by_category == {
        "before the record": 5 * MIB,  # the activations: their frames went with their events
        "weights": 4 * MIB,  # still held: the block has its frames
        "gradients": 4 * MIB,
        "communication": MIB,
    }


def test_segments_alone_say_what_is_held_now(tmp_path: Path) -> None:
    document = snapshot()
    for form in ({"segments": document["segments"]}, document["segments"]):
        found = read(tmp_path, form)
        assert (found.peak_bytes, found.history, found.peak_at_us) == (10 * MIB, False, None)
        assert found.by_category == {
            "weights": 4 * MIB,
            "before the record": 4 * MIB,
            "optimizer": 2 * MIB,
        }
        assert found.fragmentation == pytest.approx(0.5)


def test_older_blocks_without_addresses_or_requested_sizes(tmp_path: Path) -> None:
    document = snapshot()
    for block in document["segments"][0]["blocks"]:
        del block["address"], block["requested_size"]
    assert read(tmp_path, document).peak_bytes == 14 * MIB


def test_retries_and_failed_allocations_are_counted(tmp_path: Path) -> None:
    document = snapshot()
    document["device_traces"][0] += [
        event("segment_free", 40 * MIB, MIB, 11),
        event("segment_alloc", 60 * MIB, 2 * MIB, 12),
        event("segment_free", 60 * MIB, 2 * MIB, 13, [("/app/x.py", 1, "empty_cache")]),
        event("segment_alloc", 60 * MIB, 2 * MIB, 14),
        event("segment_free", 60 * MIB, 2 * MIB, 15),
        {"action": "oom", "size": 9 * MIB, "device_free": 1, "time_us": 16, "frames": []},
    ]
    found = read(tmp_path, document)
    assert (found.retries, found.ooms) == (2, 1)


def test_the_device_that_held_most_is_told_and_the_others_named(tmp_path: Path) -> None:
    document = snapshot()
    document["device_traces"].append([event("alloc", 0, 99 * MIB, 1, FORWARD)])
    found = read(tmp_path, document)
    assert (found.device, found.peak_bytes) == (1, 99 * MIB)
    assert found.other_devices == {0: 14 * MIB}


@pytest.mark.parametrize(
    ("stack", "category"),
    [
        (WEIGHT, "weights"),
        (FORWARD, "activations"),
        (ADAM, "optimizer"),
        (GATHER, "communication"),
        (RECOMPUTED, "activations"),
        ([], "gradients"),
        ([("/lib/torch/_tensor.py", 600, "backward"), *FORWARD[4:]], "gradients"),
        ([("??", 0, "torch::autograd::generated::MmBackward0::apply")], "gradients"),
        ([("/app/op.py", 5, "backward"), *FORWARD[3:]], "gradients"),
        ([("/lib/torch/distributed/distributed_c10d.py", 5, "all_reduce")], "communication"),
        ([("/lib/torch/utils/data/dataloader.py", 5, "__next__")], "data"),
        ([("/lib/torch/optim/optimizer.py", 9, "zero_grad"), ("/a.py", 1, "main")], "other"),
        ([("/lib/megatron/core/optimizer/distrib_optimizer.py", 9, "step")], "optimizer"),
        ([("/app/serve.py", 5, "handle")], "other"),
    ],
)
def test_categories(stack: list[tuple[str, int, str]], category: str) -> None:
    assert category_of([Frame(*f) for f in stack], others_have_frames=True) == category


def test_sites_are_outside_of_torch() -> None:
    assert site_of([Frame(*f) for f in FORWARD]) == "app/model.py:40 forward"
    assert site_of([Frame("C:\\a\\b\\c.py", 3, "f")]) == "b/c.py:3 f"


@pytest.mark.parametrize("name", ["snap.pickle", "snap.pkl", "snap.json", "snap"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles_are_refused_with_the_line_that_converts_them(
    tmp_path: Path, name: str, protocol: int
) -> None:
    with pytest.raises(InvalidInput, match="is a pickle") as caught:
        read(tmp_path, pickle.dumps(snapshot(), protocol=protocol), name)
    hint = caught.value.findings[0].hint
    assert f"json.dump(pickle.load(open('{name}', 'rb'))" in hint
    code = hint.partition('python -c "')[2].rstrip('"')
    compile(code, "hint", "exec")  # what the user is told to type is Python


def test_the_line_that_converts_pickles_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "snap.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    with pytest.raises(InvalidInput) as caught:
        read_snapshot(path)
    monkeypatch.chdir(tmp_path)
    import subprocess
    import sys

    code = caught.value.findings[0].hint.partition('python -c "')[2].rstrip('"')
    subprocess.run([sys.executable, "-c", code], check=True)
    assert read_snapshot(tmp_path / "snap.json").peak_bytes == 14 * MIB


@pytest.mark.parametrize(
    "text", [b"[]", b"{}", b"7", b"null", b'{"segments": 3}', b'{"segments": [', b"x"]
)
def test_what_is_no_snapshot_is_refused_with_what_to_type(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text)
    assert "_snapshot()" in caught.value.findings[0].hint


EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "action": st.sampled_from(
                [
                    "alloc",
                    "free_requested",
                    "free_completed",
                    "segment_alloc",
                    "segment_free",
                    "oom",
                    "x",
                ]
            ),
            "addr": st.one_of(st.none(), st.integers(0, 6)),
            "size": st.integers(-5, 1 << 40),
            "time_us": st.one_of(st.none(), st.integers(0, 9)),
            "frames": st.sampled_from([[], frames(FORWARD), frames(ADAM), {}, [3], None]),
        }
    ),
    max_size=30,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(trace=EVENTS, with_segments=st.booleans())
def test_any_history_gives_sound_figures(
    tmp_path: Path, trace: list[Any], with_segments: bool
) -> None:
    document = snapshot()
    document["device_traces"] = [trace]
    if not with_segments:
        document["segments"] = []
    if not trace and not with_segments:
        return
    found = read(tmp_path, document)
    assert found.peak_bytes >= 0
    assert sum(found.by_category.values()) == found.peak_bytes
    assert 0 <= found.fragmentation <= 1
    assert found.reserved_bytes >= found.peak_bytes


@pytest.mark.parametrize("size", ["9" * 400, "-" + "9" * 400, str(1 << 60)])
def test_sizes_that_no_memory_has_are_refused(size: str, tmp_path: Path) -> None:
    path = tmp_path / "snap.json"
    path.write_text('{"segments": [{"total_size": ' + size + "}]}", encoding="utf-8")
    with pytest.raises(InvalidInput, match="no snapshot"):
        read_snapshot(path)
