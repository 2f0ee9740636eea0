"""Legality rules against what they mean: heads and experts dealt to ranks, layers to stages."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.plan.plan import ContextParallel
from meshwright.rules.example import build_job
from meshwright.rules.rule import as_numpy, find_rule

degrees = st.integers(1, 12)
small = settings(max_examples=150, deadline=None)


def fires(code: str, **job: Any) -> bool:
    """Whether a rule fires on a job of one plan."""
    rule_ = find_rule(code)
    assert rule_ is not None
    with np.errstate(divide="ignore"):
        return bool(rule_.condition(as_numpy(build_job(**job))))


def dealt_evenly(items: int, ranks: int) -> bool:
    """Items dealt in turn leave every rank with the same number, and at least one."""
    hands = Counter(item % ranks for item in range(items))
    return len(hands) == ranks and len(set(hands.values())) == 1


@small
@given(heads=st.integers(1, 64), tp=degrees)
def test_heads_are_dealt_evenly_over_tp(heads: int, tp: int) -> None:
    job = {"num_attention_heads": heads, "num_key_value_heads": heads, "tp": tp}
    assert fires("MOD101", **job) == (not dealt_evenly(heads, tp))


@small
@given(kv_heads=st.integers(1, 12), group=st.integers(1, 12), tp=degrees)
def test_a_rank_has_whole_key_value_heads_or_shares_one(kv_heads: int, group: int, tp: int) -> None:
    heads = kv_heads * group
    if heads % tp:
        return
    per_rank = heads // tp
    own = [{q // group for q in range(r * per_rank, (r + 1) * per_rank)} for r in range(tp)]
    holders = Counter(head for rank in own for head in rank)
    legal = all(len(rank) == 1 or all(holders[h] == 1 for h in rank) for rank in own)
    job = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "tp": tp}
    assert fires("MOD102", **job) == (not legal)


@small
@given(experts=st.integers(1, 64), ep=degrees)
def test_experts_are_dealt_evenly_over_ep(experts: int, ep: int) -> None:
    job = {"model": "mixtral-8x7b", "num_experts": experts, "ep": ep}
    assert fires("MOD140", **job) == (not dealt_evenly(experts, ep))


@small
@given(tp=degrees, cp=st.integers(1, 4), dp=degrees, ep=degrees, etp=st.integers(1, 4))
def test_expert_groups_tile_the_ranks_of_a_stage(
    tp: int, cp: int, dp: int, ep: int, etp: int
) -> None:
    ranks = [(t, c, d) for d in range(dp) for c in range(cp) for t in range(tp)]
    groups = Counter(place // (ep * etp) for place, _ in enumerate(ranks))
    whole = all(size == ep * etp for size in groups.values())
    job = {"model": "mixtral-8x7b", "tp": tp, "cp": cp, "dp": dp, "ep": ep, "etp": etp}
    assert fires("MOD142", **job) == (not whole)


@small
@given(
    layers=st.integers(1, 24), pp=st.integers(2, 8), first=st.integers(0, 8), last=st.integers(0, 8)
)
def test_stated_stages_and_equal_middle_ones_hold_the_model(
    layers: int, pp: int, first: int, last: int
) -> None:
    if not first and not last:
        return
    between = pp - (first > 0) - (last > 0)
    sizes = range(1, layers + 1) if between else [0]
    possible = any(first + last + between * size == layers for size in sizes)
    job = {
        "num_hidden_layers": layers,
        "pp": pp,
        "first_stage_layers": first,
        "last_stage_layers": last,
    }
    refused = fires("MOD119", **job) or fires("MOD120", **job)
    assert refused == (not possible)


@small
@given(layers=st.integers(1, 40), pp=st.integers(1, 8), vpp=st.integers(1, 8))
def test_every_chunk_gets_a_layer(layers: int, pp: int, vpp: int) -> None:
    chunks = Counter(dict.fromkeys(range(pp * vpp), 0))
    chunks.update(layer % (pp * vpp) for layer in range(layers))
    empty = 0 in chunks.values()
    assert fires("MOD131", num_hidden_layers=layers, pp=pp, vpp=vpp) == empty
    even = len(set(chunks.values())) == 1
    uneven = fires("MOD113", num_hidden_layers=layers, pp=pp, vpp=vpp) or fires(
        "MOD114", num_hidden_layers=layers, pp=pp, vpp=vpp
    )
    if pp > 1:
        assert uneven == (not even)


@small
@given(
    layout=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    pp=st.integers(1, 4),
    vpp=st.integers(1, 3),
)
def test_a_layout_gives_every_rank_its_chunks_and_the_model_its_layers(
    layout: list[int], pp: int, vpp: int
) -> None:
    chunks = Counter(chunk % pp for chunk, _ in enumerate(layout))
    legal = all(chunks[rank] == vpp for rank in range(pp)) and sum(layout) == 12
    job = {"num_hidden_layers": 12, "layout": tuple(layout), "pp": pp, "vpp": vpp}
    refused = any(fires(code, **job) for code in ("MOD125", "MOD126", "MOD127", "MOD133"))
    assert refused == (not legal)


@small
@given(heads=st.integers(1, 48), tp=st.integers(1, 4), cp=st.integers(2, 8))
def test_the_all_to_all_leaves_every_rank_whole_heads(heads: int, tp: int, cp: int) -> None:
    job = {
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "tp": tp,
        "cp": cp,
        "context_parallel": int(ContextParallel.ULYSSES),
    }
    assert fires("MOD172", **job) == (not dealt_evenly(heads, tp * cp))


@small
@given(cp=st.integers(2, 16), inner=st.integers(2, 8))
def test_inner_rings_tile_the_context_group(cp: int, inner: int) -> None:
    groups = Counter(rank // inner for rank in range(cp))
    whole = all(size == inner for size in groups.values())
    job = {"cp": cp, "cp_inner": inner, "context_parallel": int(ContextParallel.HIERARCHICAL)}
    assert fires("MOD179", **job) == (not whole)


@small
@given(
    experts=st.integers(1, 12), top_k=st.integers(1, 6), n=st.integers(1, 6), k=st.integers(1, 4)
)
def test_a_router_can_make_its_choice(experts: int, top_k: int, n: int, k: int) -> None:
    equal = experts % n == 0
    size = experts // n
    groups = [range(g * size, (g + 1) * size) for g in range(n)]
    choices = [sum(len(g) for g in chosen) >= top_k for chosen in combinations(groups, k)]
    possible = equal and any(choices)
    job = {
        "model": "mixtral-8x7b",
        "num_experts": experts,
        "top_k": top_k,
        "n_group": n,
        "topk_group": k,
    }
    assert fires("MOD189", **job) == (not possible)


@small
@given(
    axes=st.permutations(["tp", "cp", "dp", "pp"]),
    sizes=st.tuples(*[st.sampled_from([1, 2, 3])] * 4),
    ep=st.sampled_from([1, 2, 3, 4, 6]),
)
def test_both_meshes_put_a_rank_on_the_same_stage(
    axes: list[str], sizes: tuple[int, ...], ep: int
) -> None:
    dense = dict(zip(["tp", "cp", "dp", "pp"], sizes, strict=True))
    ranks = dense["tp"] * dense["cp"] * dense["dp"]
    if ranks % ep:
        return
    order = [name for axis in axes for name in ((axis, "ep") if axis == "cp" else (axis,))]
    expert = {"ep": ep, "dp": ranks // ep, "pp": dense["pp"]}

    def stage(rank: int, mesh: dict[str, int]) -> int:
        for axis in order:
            size = mesh.get(axis, 1)
            if axis == "pp":
                return rank % size
            rank //= size
        raise AssertionError("no pipeline axis")

    world = range(ranks * dense["pp"])
    agree = all(stage(r, dense) == stage(r, expert) for r in world)
    job = {"model": "mixtral-8x7b", **dense, "ep": ep, "rank_order": "-".join(order)}
    assert fires("MOD145", **job) == (not agree)
