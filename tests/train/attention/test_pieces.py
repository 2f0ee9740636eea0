import pytest

torch = pytest.importorskip("torch")

from meshwright.train.attention.context.making import span_of  # noqa: E402
from meshwright.train.attention.pieces import is_packed, pieces_of  # noqa: E402

DOCUMENTS = torch.tensor([[0, 0, 1, 2, 2, -1], [0] * 6, [-1] * 6], dtype=torch.int32)


def test_pieces_begin_where_a_number_changes_padding_among_them():
    assert pieces_of(DOCUMENTS) == ((0, 2, 3, 5, 6), (0, 6), (0, 6))
    assert pieces_of(torch.zeros(1, 1)) == ((0, 1),)


def test_rows_of_one_document_each_are_not_packed():
    assert is_packed(pieces_of(DOCUMENTS))
    assert not is_packed(pieces_of(DOCUMENTS[1:]))
    positions = torch.arange(6)
    assert span_of(positions, DOCUMENTS[1:]).documents is None
    assert span_of(positions, DOCUMENTS).pieces == pieces_of(DOCUMENTS)


def test_tensors_without_values_are_left_to_a_mask():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(2, 6, dtype=torch.int32)
        assert pieces_of(fake) is None
        assert span_of(torch.arange(6), fake).documents is fake
    assert pieces_of(torch.zeros(2, 6, device="meta")) is None
