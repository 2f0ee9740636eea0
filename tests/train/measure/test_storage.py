"""The tracker against arithmetic, against fake tensors, and against the allocator itself."""

# ruff: noqa: E402 - torch is asked for before it is imported

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.profiler import ProfilerActivity, profile

from meshwright.train.adapters.fake import fake_tensors
from meshwright.train.measure.storage import Category, StorageTracker


def test_a_storage_counts_once_however_many_views_it_has():
    with StorageTracker() as tracker:
        a = torch.ones(256)
        b, c = a.view(16, 16), a[:8]
        assert tracker.now == 1024
        del a, b
        assert tracker.now == 1024
        del c
        assert tracker.now == 0


def test_a_peak_is_the_most_of_its_stretch():
    with StorageTracker() as tracker:
        a = torch.ones(1000)
        b = torch.ones(500)
        del b
        assert tracker.cut().bytes == 6000
        c = a + 1
        assert tracker.cut().bytes == 8000
        del a, c
        assert tracker.cut().bytes == 8000  # what was alive as the stretch began


def test_resizing_counts():
    with StorageTracker() as tracker:
        a = torch.ones(1000)
        a.untyped_storage().resize_(0)
        assert tracker.now == 0
        a.untyped_storage().resize_(4000)
        assert tracker.now == 4000


def test_a_resize_outside_the_tracker_is_not_its_business():
    with StorageTracker() as tracker:
        a = torch.ones(10)
    a.untyped_storage().resize_(0)
    assert tracker.now == 40


def test_what_was_there_before_counts_when_it_is_shown():
    weight = torch.ones(100)
    tracker = StorageTracker()
    tracker.see(weight, Category.WEIGHTS)
    with tracker:
        other = weight.view(10, 10)  # noqa: F841
        assert tracker.now == 400
    assert tracker.composition(len(tracker.events))[Category.WEIGHTS] == 400


def test_what_a_storage_became_counts_at_an_earlier_peak():
    with StorageTracker() as tracker:
        tracker.label = Category.TEMPORARIES
        a, b = torch.ones(100), torch.ones(50)
        peak = tracker.cut()
        tracker.see(a, Category.GRADIENTS)
        del b
    found = tracker.composition(peak.event)
    assert found[Category.GRADIENTS] == 400
    assert found[Category.TEMPORARIES] == 200
    assert sum(found.values()) == peak.bytes


def test_the_most_of_a_category_is_not_the_most_of_all():
    with StorageTracker() as tracker:
        for size in (10, 30, 20):
            tracker.label = Category.ACTIVATIONS
            a = torch.ones(size)
            tracker.label = Category.TEMPORARIES
            b = torch.ones(1000 // size)
            del a, b
    assert tracker.most(Category.ACTIVATIONS) == 120


def test_meta_tensors_have_no_memory():
    with StorageTracker() as tracker:
        torch.ones(1000, device="meta")
    assert not tracker.events


def trained(width=256, rows=64):
    """Peak of two steps of a small network, and what is left."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters())
    tracker = StorageTracker()
    tracker.see_all(model.parameters(), Category.WEIGHTS)
    with tracker:
        for _ in range(2):
            loss = model(torch.ones(rows, width)).square().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del loss
        return tracker.cut().bytes, tracker.now


def test_fake_tensors_take_exactly_what_real_ones_take():
    real = trained()
    with fake_tensors():
        assert trained() == real


def test_the_rise_in_a_step_is_the_allocators(tmp_path):
    """Bytes of torch's own CPU allocator, from its profiler, within half a percent."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(6)))
    data = torch.ones(256, 512)

    def step():
        loss = model(data).square().sum()
        loss.backward()
        model.zero_grad()

    step()
    with StorageTracker() as tracker:
        tracker.see_all([data, *model.parameters()], Category.WEIGHTS)
        start = tracker.now
        tracker.cut()
        step()
        ours = tracker.cut().bytes - start
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    assert ours > 6 * 512 * 512 * 4
    assert ours == pytest.approx(allocator_rise(tmp_path / "trace.json"), rel=0.005)


def allocator_rise(trace):
    """The most that the allocator held above its total at the first event, in bytes."""
    events = json.loads(trace.read_text())["traceEvents"]
    memory = [e for e in events if e.get("name") == "[memory]"]
    memory.sort(key=lambda e: e["ts"])
    start = memory[0]["args"]["Total Allocated"] - memory[0]["args"]["Bytes"]
    return max(e["args"]["Total Allocated"] for e in memory) - start
