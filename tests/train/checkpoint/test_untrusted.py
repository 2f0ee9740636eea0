import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import msgspec  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from small import read, write  # noqa: E402

from meshwright.base.errors import InvalidInput  # noqa: E402
from meshwright.data.shards.hashed import digest_of  # noqa: E402
from meshwright.train.checkpoint import damage_of, latest, restore  # noqa: E402
from meshwright.train.checkpoint.index import INDEX, read_index  # noqa: E402
from meshwright.train.checkpoint.manifest import (  # noqa: E402
    MANIFEST,
    File,
    encoded,
    read_manifest,
)
from meshwright.train.local import RankFailed, run_ranks  # noqa: E402


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory):
    """A checkpoint of two ranks, which tests copy before they harm it."""
    folder = tmp_path_factory.mktemp("run")
    write(folder, ranks=2)
    return folder / "step-1"


@pytest.fixture(name="mine")
def _mine(folder, tmp_path):
    return _copy(folder, tmp_path / "step-1")


def _copy(folder: Path, to: Path) -> Path:
    to.mkdir(parents=True)
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def _forge(folder: Path) -> None:
    """Makes manifest.json fit whatever the files hold: digests do not keep forgers out."""
    manifest = read_manifest(folder)
    files = {}
    for name in manifest.files:
        found = digest_of(folder / name)
        files[name] = File(bytes=found.bytes, xxh3_128=found.xxh3_128)
    (folder / MANIFEST).write_bytes(encoded(replace(manifest, files=files)))


class Evil:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


def test_a_pickle_in_the_place_of_any_file_is_never_run(folder, tmp_path):
    mark = tmp_path / "mark"
    payload = pickle.dumps(Evil(mark))
    pickle.loads(payload)  # it does what it says
    mark.rmdir()
    names = sorted(path.name for path in folder.iterdir())
    assert INDEX in names
    assert len(names) == 4
    for name in names:
        place = _copy(folder, tmp_path / name / "step-1")
        (place / name).write_bytes(payload)
        if name != MANIFEST:
            _forge(place)
        with pytest.raises(RankFailed):
            read(place)
        assert not mark.exists()


def test_pickles_beside_the_files_are_not_looked_at(mine, tmp_path):
    mark = tmp_path / "mark"
    for name in (".metadata", "__0_0.distcp", "rank-00009.safetensors", "model.pt"):
        (mine / name).write_bytes(pickle.dumps(Evil(mark)))
    assert damage_of(mine) == []
    assert read(mine)
    assert not mark.exists()


def test_a_checkpoint_holds_no_pickle(folder):
    for path in folder.iterdir():
        data = path.read_bytes()
        assert not data.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK"))
        assert path.suffix in (".json", ".safetensors")


@given(data=st.data())
@settings(max_examples=60)
def test_any_flipped_bit_and_any_cut_is_seen(folder, tmp_path_factory, data):
    place = _copy(folder, tmp_path_factory.mktemp("harmed") / "step-1")
    path = place / data.draw(st.sampled_from(sorted(p.name for p in place.iterdir())))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at:]
    path.write_bytes(content)
    found = damage_of(place)
    assert found
    assert path.name in found[0].file
    assert latest(place.parent).folder is None


def test_the_newest_whole_one_is_taken_and_the_torn_one_is_told(folder, tmp_path):
    for step in (3, 20, 100):
        _copy(folder, tmp_path / f"step-{step}")
    (tmp_path / "step-999.tmp").mkdir()
    (tmp_path / "step-100" / "rank-00001.safetensors").write_bytes(b"")
    (tmp_path / "step-20" / MANIFEST).unlink()
    found = latest(tmp_path)
    assert found.folder == tmp_path / "step-3"
    assert [finding.message for finding in found.damage] == [
        "rank-00001.safetensors has 0 bytes of "
        f"{(folder / 'rank-00001.safetensors').stat().st_size:,}: it is torn",
        "holds no manifest.json: it is no finished checkpoint",
    ]


def test_ranks_share_the_reading_and_agree(mine):
    (mine / "rank-00001.safetensors").write_bytes(b"")

    def run():
        import torch.distributed as dist

        return [f.file for f in damage_of(mine, group=dist.group.WORLD)]

    assert run_ranks(run, 2) == [[str(mine / "rank-00001.safetensors")]] * 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"dtype": "object"}, "names the type"),
        ({"shape": [-1, 2]}, "has the shape"),
        ({"shape": [2**40, 2**40]}, "do not make up"),
        ({"pieces": []}, "do not make up"),
        ({"file": "../../etc/passwd.safetensors"}, "names the file"),
        ({"file": "/etc/passwd"}, "names the file"),
        ({"start": [0]}, "of other dims"),
        ({"start": [9, 0]}, "outside of its tensor"),
        ({"size": [0, 0]}, "outside of its tensor"),
        ({"size": "many"}, "is no index"),
        ({"file": 3}, "is no index"),
    ],
)
def test_an_index_that_no_writer_made_is_refused(mine, change, told):
    raw = json.loads((mine / INDEX).read_bytes())
    entry = raw["tensors"]["weights/0.weight"]
    for key, value in change.items():
        (entry if key in entry else entry["pieces"][0])[key] = value
    (mine / INDEX).write_text(json.dumps(raw))
    _forge(mine)
    with pytest.raises(InvalidInput, match=told):
        read_index(mine / INDEX)
    assert told in damage_of(mine)[0].message


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_an_index_of_anything_else_is_refused(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("index") / INDEX
    path.write_bytes(msgspec.json.encode({"format": 1, "tensors": value, "values": {}}))
    with pytest.raises(InvalidInput):
        read_index(path)


def test_a_forged_file_whose_tensors_are_others_is_refused(mine):
    from safetensors.torch import save_file

    save_file({"weights/0.weight@0,0": torch.zeros(2, 2)}, mine / "rank-00000.safetensors")
    _forge(mine)
    with pytest.raises(RankFailed, match="cannot be read"):
        read(mine)


def test_another_model_is_refused_with_every_difference(mine):
    def run():
        other = {"0": torch.nn.Linear(4, 16), "extra": torch.nn.Linear(2, 2)}
        module = torch.nn.ModuleDict(other)
        module.register_buffer("counted", torch.ones(3))
        try:
            restore(mine, [module])
        except InvalidInput as error:
            return [finding.message for finding in error.findings]
        return []

    assert run_ranks(run, 1)[0] == [
        "the checkpoint has no extra.weight",
        "the checkpoint has no extra.bias",
        "0.weight is [16, 8] in the checkpoint and [16, 4] in this run",
        "the checkpoint has 1.bias [3], which this model has not",
        "the checkpoint has 1.weight [3, 16], which this model has not",
    ]
