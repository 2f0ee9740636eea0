"""Decisions against the definition, and their cost where a thousand documents are alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.dedup import greedy
from meshwright.data.dedup.greedy import jaccard, repeats
from meshwright.data.dedup.links import Buckets
from meshwright.data.dedup.shingles import mix
from meshwright.data.documents import bounds_of


class Sets:
    """Sets of numbers as those of shingles, whose sketches are all alike."""

    def __init__(self, sets):
        self.sets = [hashed(one) for one in sets]
        self.sketches = np.zeros((len(sets), 1), dtype=np.uint64)
        self.read = 0

    def shingles(self, document):
        self.read += 1
        return self.sets[document]


def hashed(numbers):
    values = np.array(sorted(numbers), dtype=np.uint64)
    mix(values)
    return np.sort(values)


def buckets(*sets):
    members = [sorted(one) for one in sets]
    return Buckets(
        np.array([one for some in members for one in some], dtype=np.int64),
        bounds_of(np.array([len(some) for some in members], dtype=np.int64)),
    )


def plain_repeats(sets, linked, threshold):
    """By the definition: of equally like sketches the oldest counts."""
    kept, found = [], []
    for document, own in enumerate(sets):
        for other in kept:
            near = len(own & sets[other]) / max(1, len(own | sets[other]))
            if near >= threshold and any({document, other} <= one for one in linked):
                found.append((document, other, near))
                break
        else:
            kept.append(document)
    return found


SHINGLES = st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=8, max_size=8)
LINKED = st.lists(st.sets(st.integers(0, 7), min_size=2), max_size=6)


@given(SHINGLES, LINKED, st.sampled_from([0.3, 0.5, 0.8, 1.0]))
def test_decisions_are_those_of_the_definition(sets, linked, threshold):
    found = repeats(buckets(*linked), Sets(sets), threshold=threshold, most_differing=0)
    assert [tuple(one) for one in found] == plain_repeats(sets, linked, threshold)


@given(SHINGLES, st.sampled_from([0.3, 0.5, 0.8, 1.0]))
def test_outlines_change_no_decision(sets, threshold):
    everything = buckets(set(range(8)))
    plain = plain_repeats(sets, [set(range(8))], threshold)
    for few in (0, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(greedy, "_FEW", few)
            found = repeats(everything, Sets(sets), threshold=threshold, most_differing=0)
            assert [tuple(one) for one in found] == plain


@given(st.sets(st.integers(0, 50)), st.sets(st.integers(0, 50)))
def test_jaccard_similarity(one, other):
    expected = len(one & other) / max(1, len(one | other))
    assert jaccard(hashed(one), hashed(other)) == expected


def test_a_chain_keeps_every_second_link():
    sets = [set(range(start, start + 20)) for start in range(0, 10, 2)]  # neighbors: 18 of 22
    found = repeats(buckets(set(range(5))), Sets(sets), threshold=0.8, most_differing=0)
    assert [(one.document, one.of) for one in found] == [(1, 0), (3, 2)]


def test_the_likest_sketch_is_tried_first():
    sets = Sets([set(range(10)), set(range(1, 11)), set(range(10))])
    sets.sketches[:, 0] = [0, 0xFF, 0xFF]
    found = repeats(buckets({0, 2}, {1, 2}), sets, threshold=0.8, most_differing=8)
    assert [(one.document, one.of) for one in found] == [(2, 1)]


def test_documents_with_unlike_sketches_are_passed_over():
    sets = Sets([{1, 2}, {3, 4}, {1, 2}])
    sets.sketches[:, 0] = [0, 0, 0xFFFF]
    linked = buckets({0, 1, 2})
    assert not list(repeats(linked, sets, threshold=0.5, most_differing=1))
    assert len(list(repeats(linked, sets, threshold=0.5, most_differing=2))) == 1


def test_thousands_of_copies_cost_thousands_of_comparisons():
    sets = Sets([set(range(40)) | {100 + copy} for copy in range(3000)])
    found = list(repeats(buckets(set(range(3000))), sets, threshold=0.8, most_differing=0))
    assert len(found) == 2999
    assert sets.read < 3 * 3000


def test_thousands_from_one_template_read_few_sets():
    template = set(range(150))
    sets = Sets([template | set(range(1000 * n, 1000 * n + 50)) for n in range(1, 401)])  # J = 0.6
    assert not list(repeats(buckets(set(range(400))), sets, threshold=0.8, most_differing=0))
    assert sets.read < 5 * 400
