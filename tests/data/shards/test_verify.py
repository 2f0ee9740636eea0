"""Whatever happens to a folder of shards, verify tells, and never stumbles."""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Severity
from meshwright.data.shards.hashed import digest_of
from meshwright.data.shards.manifest import (
    Cluster,
    Example,
    File,
    Manifest,
    ShardRecord,
    decoded,
    encoded,
    read_manifest,
)
from meshwright.data.shards.names import MANIFEST, is_safe
from meshwright.data.shards.verify import verify


def told(folder: Path) -> list[str]:
    return [finding.one_line() for finding in verify(folder).findings]


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def rewrite(folder: Path, manifest: Manifest) -> None:
    """The folder with another manifest, its digests those of the files as they are."""
    files = {}
    for name in manifest.files:
        found = digest_of(folder / name)
        files[name] = File(bytes=found.bytes, xxh3_128=found.xxh3_128)
    (folder / MANIFEST).write_bytes(encoded(replace(manifest, files=files)))


def test_what_was_written_is_whole(small: Path) -> None:
    found = verify(small)
    assert found.findings == ()
    assert found.files == 12
    assert found.shards == 3


def test_a_whole_build_is_whole(built: Path) -> None:
    found = verify(built)
    assert found.findings == ()
    assert found.encoded_again >= 10
    assert found.bytes == sum(p.stat().st_size for p in files_of(built) if p.name != MANIFEST) - (
        (built / ".build.json").stat().st_size
    )


def test_any_flipped_byte_is_found(small: Path) -> None:
    manifest = read_manifest(small)
    for path in files_of(small):
        content = path.read_bytes()
        for at in range(len(content)):
            changed = bytearray(content)
            changed[at] ^= 1 << (at % 8)
            if path.name == MANIFEST:
                with pytest.raises(InvalidInput):
                    decoded(bytes(changed), path)
            else:
                recorded = manifest.files[path.name].xxh3_128
                assert xxhash.xxh3_128_hexdigest(bytes(changed)) != recorded
            if at % 97 == 0:
                path.write_bytes(changed)
                assert [Path(f.file).name for f in verify(small).findings] == [path.name]
        path.write_bytes(content)
    assert told(small) == []


def test_a_flipped_byte_names_its_file(built: Path) -> None:
    rng = random.Random(0)
    for path in files_of(built):
        if path.name in (".build.json", MANIFEST):
            continue
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        whole = path.read_bytes()
        path.write_bytes(content)
        findings = verify(built).findings
        path.write_bytes(whole)
        assert [finding.file for finding in findings] == [str(path)]
        assert "was changed" in findings[0].message
        assert findings[0].hint


@pytest.mark.parametrize("change", [-1, -5, 1, 100])
def test_truncated_and_longer_files(built: Path, change: int) -> None:
    for path in files_of(built):
        if path.name == ".build.json":
            continue
        whole = path.read_bytes()
        path.write_bytes(whole[:change] if change < 0 else whole + bytes(change))
        findings = verify(built).findings
        path.write_bytes(whole)
        assert [finding.file for finding in findings] == [str(path)], path.name
        if path.name != MANIFEST:
            says = (
                f"ends at byte {len(whole) + change:,}" if change < 0 else f"{change:,} bytes more"
            )
            assert says in findings[0].message


def test_missing_files(built: Path) -> None:
    for path in files_of(built):
        if path.name == ".build.json":
            continue
        whole = path.read_bytes()
        path.unlink()
        findings = verify(built).findings
        path.write_bytes(whole)
        assert [finding.file for finding in findings] == [str(path)]


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("train-00099.bin", Severity.ERROR),
        ("valid-00000.idx.part", Severity.WARNING),
        ("tokenizer/extra.json", Severity.ERROR),
        ("notes.txt", Severity.WARNING),
        ("deep/er/file", Severity.WARNING),
    ],
)
def test_foreign_files(built: Path, name: str, severity: Severity) -> None:
    path = built / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    findings = verify(built).findings
    assert [(finding.file, finding.severity) for finding in findings] == [(str(path), severity)]


def test_the_work_of_a_build_is_not_looked_at(built: Path) -> None:
    (built / ".work" / "scan").mkdir(parents=True)
    (built / ".work" / "scan" / "x").write_bytes(b"x")
    assert told(built) == []


def test_links_are_not_followed(built: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.move(built / "train-00000.bin", outside)
    (built / "train-00000.bin").symlink_to(outside)
    assert "is a link" in told(built)[0]
    (built / "train-00000.bin").unlink()
    shutil.move(outside, built / "train-00000.bin")
    shutil.move(built / "tokenizer", outside)
    (built / "tokenizer").symlink_to(outside)
    assert any("is a link" in line for line in told(built))


def test_folders_and_pipes_in_place_of_files(built: Path) -> None:
    path = built / "train-00000.bin"
    path.unlink()
    path.mkdir()
    assert any("is no file" in line for line in told(built))
    path.rmdir()
    os.mkfifo(path)
    assert any("is no file" in line for line in told(built))


def test_a_manifest_that_is_no_file(built: Path) -> None:
    (built / MANIFEST).unlink()
    os.mkfifo(built / MANIFEST)
    assert "is no file" in told(built)[0]
    (built / MANIFEST).unlink()
    (built / MANIFEST).symlink_to("/dev/zero")
    assert "is no file" in told(built)[0]


def test_no_folder_at_all(tmp_path: Path) -> None:
    assert "manifest.json cannot be read" in told(tmp_path)[0]
    assert "manifest.json cannot be read" in told(tmp_path / "none")[0]
    (tmp_path / "file").write_text("x")
    assert "manifest.json cannot be read" in told(tmp_path / "file")[0]


@pytest.mark.parametrize(
    "name",
    [
        "../x", "/etc/passwd", "a/../../x", "tokenizer/../../x", "tokenizer/a/b", "tokenizer/",
        "tokenizer/.x", "tokenizer/..", "x", "", ".", "..", "train-00000.bin\0", "train-1.bin",
        "TRAIN-00000.bin", "train-00000.bin\n", "manifest.json", "tokenizer\\x", "C:\\x",
        "train-00000.bin/", ".work/x", "tokenizer//x",
    ],
)  # fmt: skip
def test_a_manifest_cannot_name_what_is_outside(built: Path, name: str) -> None:
    assert not is_safe(name)
    manifest = read_manifest(built)
    files = {**manifest.files, name: File(bytes=1, xxh3_128="0")}
    (built / MANIFEST).write_bytes(encoded(replace(manifest, files=files)))
    assert "which no build writes" in told(built)[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"packed": {"seq_len": 0}}, "rows of 0 tokens"),
        ({"packed": {"layout": "x"}}, "layout 'x'"),
        ({"vocabulary": {"dtype": "O"}}, "type 'O'"),
        ({"vocabulary": {"pad_id": 10**9}}, "pad id"),
        ({"format": 2}, "format 2"),
    ],
)
def test_a_manifest_of_nonsense(built: Path, change: dict, says: str) -> None:
    manifest = read_manifest(built)
    for name, value in change.items():
        inner = value if not isinstance(value, dict) else replace(getattr(manifest, name), **value)
        manifest = replace(manifest, **{name: inner})
    (built / MANIFEST).write_bytes(encoded(manifest))
    assert says in told(built)[0]


@pytest.mark.parametrize("name", ["../train-00000", "/train-00000", "train-x", "valid-00000"])
def test_a_shard_of_another_name(built: Path, name: str) -> None:
    manifest = read_manifest(built)
    shards = [replace(manifest.shards[0], name=name), *manifest.shards[1:]]
    (built / MANIFEST).write_bytes(encoded(replace(manifest, shards=shards)))
    assert "names a shard" in told(built)[0]


def test_the_same_manifest_in_other_words_is_not_the_same(built: Path) -> None:
    path = built / MANIFEST
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    assert "was changed" in told(built)[0]
    content["unknown"] = 1
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    assert "was changed" in told(built)[0]


def test_any_bytes_as_a_manifest(built: Path) -> None:
    path, rng = built / MANIFEST, random.Random(1)
    whole = path.read_bytes()
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(rng.randrange(1, 5)):
            start = rng.randrange(len(changed))
            changed[start : start + rng.randrange(40)] = rng.randbytes(rng.randrange(40))
        path.write_bytes(changed)
        assert len(verify(built).findings) == 1
    for content in (b"", b"[" * 100_000, b'{"a":' * 50_000, b"\xff", b"null", b"[]", b"{}"):
        path.write_bytes(content)
        assert len(verify(built).findings) == 1


# Faults that a digest does not show, as of a builder gone wrong


COUNTS = ["documents", "tokens", "rows", "pieces", "cost", "largest_cost"]


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_a_shard(small: Path, name: str) -> None:
    manifest = read_manifest(small)
    record = manifest.shards[0]
    shards = [replace(record, **{name: getattr(record, name) + 1}), *manifest.shards[1:]]
    rewrite(small, replace(manifest, shards=shards))
    assert told(small)


def change_tokens(folder: Path, change: object) -> None:
    path = folder / "train-00000.bin"
    tokens = np.fromfile(path, dtype="<u2")
    change(tokens)  # type: ignore[operator]
    tokens.tofile(path)
    rewrite(folder, read_manifest(folder))


def test_ids_outside_the_vocabulary(small: Path) -> None:
    def change(tokens: np.ndarray) -> None:
        tokens[7] = 300

    change_tokens(small, change)
    assert "has id 300 of 300 at byte 14" in told(small)[0]


def test_a_token_in_place_of_the_end_of_text(small: Path) -> None:
    def change(tokens: np.ndarray) -> None:
        tokens[np.argmax(tokens == 0)] = 5

    change_tokens(small, change)
    assert any("does not end in the end of text" in line for line in told(small))


def change_plan(folder: Path, end: str, change: object) -> None:
    path = folder / f"train-00000{end}"
    values = np.load(path)
    change(values)  # type: ignore[operator]
    np.save(path, values)
    rewrite(folder, read_manifest(folder))


@pytest.mark.parametrize("field", ["sequence", "start", "length", "next", "document", "offset"])
@pytest.mark.parametrize("by", [-1, 1, 2**30])
def test_pieces_that_are_wrong(small: Path, field: str, by: int) -> None:
    def change(pieces: np.ndarray) -> None:
        pieces[field][3] += by

    change_plan(small, ".pieces.npy", change)
    assert told(small)


@pytest.mark.parametrize("field", ["first", "pieces", "tokens", "cost"])
@pytest.mark.parametrize("by", [-1, 1])
def test_rows_that_are_wrong(small: Path, field: str, by: int) -> None:
    def change(rows: np.ndarray) -> None:
        rows[field][2] += by

    change_plan(small, ".rows.npy", change)
    assert told(small)


def test_sums_of_a_manifest(built: Path) -> None:
    manifest = read_manifest(built)
    counts = {**manifest.counts, "": manifest.counts[""] + 1}
    rewrite(built, replace(manifest, counts=counts))
    assert any("documents read" in line for line in told(built))
    sources = [replace(manifest.sources[0], train_tokens=1)]
    rewrite(built, replace(manifest, sources=sources))
    assert any("tokens in train shards" in line for line in told(built))


def change_table(folder: Path, name: str, **columns: object) -> None:
    """A parquet file with a column changed by a function of its values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(folder / name)
    for column, change in columns.items():
        values = table.column(column).to_pylist()
        changed = pa.array(change(values), type=table.schema.field(column).type)  # type: ignore[operator]
        table = table.set_column(table.schema.get_field_index(column), column, changed)
    pq.write_table(table, folder / name)
    rewrite(folder, read_manifest(folder))


def first_given(values: list, change: object) -> list:
    at = next(n for n, value in enumerate(values) if value is not None)
    return [*values[:at], change(values[at]), *values[at + 1 :]]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("column", "change", "says"),
    [
        ("document", lambda n: n + 1, "same place|another length"),
        ("document", lambda _: 10**6, "not there"),
        ("tokens", lambda n: n + 1, "another length"),
        ("copies", lambda n: n + 1, "places"),
        ("reason", lambda _: "empty", "other reasons"),
    ],
)
def test_documents_that_are_wrong(built: Path, column: str, change: object, says: str) -> None:
    change_table(built, "documents.parquet", **{column: lambda v: first_given(v, change)})
    lines = told(built)
    assert any(any(word in line for word in says.split("|")) for line in lines), lines


def test_a_text_that_gives_other_tokens(built: Path) -> None:
    change_table(
        built, "text-00000.parquet", text=lambda v: first_given(v, lambda text: text + "!")
    )
    assert any("whose tokens in" in line for line in told(built))


def test_another_tokenizer(built: Path) -> None:
    path = built / "tokenizer" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["merges"] = content["model"]["merges"][:-1]
    path.write_text(json.dumps(content))
    rewrite(built, read_manifest(built))
    assert any("tokenizer cannot be used" in line for line in told(built))


def test_a_table_that_is_none(built: Path) -> None:
    (built / "documents.parquet").write_bytes(b"PAR1 nothing PAR1")
    rewrite(built, read_manifest(built))
    assert any("documents.parquet cannot be read" in line for line in told(built))


def test_damaged_shards_do_not_stop_the_rest(built: Path) -> None:
    (built / "train-00000.bin").write_bytes(b"")
    (built / "train-00001.idx").unlink()
    names = [Path(finding.file).name for finding in verify(built).findings]
    assert names == ["train-00000.bin", "train-00001.idx"]


def test_a_record_of_no_shard(small: Path) -> None:
    manifest = read_manifest(small)
    ghost = ShardRecord(
        name="train-00007", split="train", documents=0, tokens=0, rows=0, pieces=0, cost=0,
        largest_cost=0,
    )  # fmt: skip
    rewrite(small, replace(manifest, shards=[*manifest.shards, ghost]))
    assert any("train-00007" in line for line in told(small))


def test_reading_a_changed_manifest_is_refused(built: Path) -> None:
    path = built / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"seed": 0', b'"seed": 1'))
    with pytest.raises(InvalidInput, match="digest does not fit"):
        read_manifest(built)


def test_progress_is_told(built: Path) -> None:
    heard: list[tuple[int, int]] = []
    found = verify(built, on_bytes=lambda read, of: heard.append((read, of)))
    assert heard == sorted(heard)
    assert heard[-1] == (found.bytes, found.bytes)
    assert len(heard) == found.files


def test_counts_are_those_of_the_files(built: Path) -> None:
    made = read_manifest(built)
    first, source = made.inputs[0], made.sources[0]
    settings = json.loads(json.dumps(made.settings))
    forged = {
        "rejected lines": replace(made, facts=made.facts | {"rejected": 12_345}),
        "repaired documents": replace(made, facts=made.facts | {"repaired": 2**40}),
        "documents kept of source": replace(
            made, sources=[replace(source, documents=2**31), *made.sources[1:]]
        ),
        f"documents of {first.path}": replace(
            made,
            inputs=[replace(first, documents=first.documents + 1), *made.inputs[1:]],
            counts=made.counts | {"": made.counts[""] + 1},
        ),
        "duplicates of ../x:1": replace(
            made, clusters=[Cluster(file="../x", line=1, duplicates=9), *made.clusters]
        ),
        "none of its inputs": replace(
            made, examples={"short": [Example(file="../x", line=1, excerpt="")]}
        ),
        "has the seed 77": replace(made, seed=77),
        "tells another validation": replace(made, settings=settings | {"validation": ".."}),
        "tells another pack.seq_len": replace(
            made, settings=settings | {"pack": settings["pack"] | {"seq_len": 2**40}}
        ),
    }
    for said, manifest in forged.items():
        (built / MANIFEST).write_bytes(encoded(manifest))
        assert said in " ".join(told(built))


@pytest.mark.parametrize("change", [{"of_tomorrow": 1}, {"facts": None}, {"inputs": [{}]}])
def test_a_manifest_of_another_version_is_told_as_such(built: Path, change: dict[str, Any]) -> None:
    path = built / MANIFEST
    content = json.loads(path.read_bytes()) | change | {"digest": ""}
    if change == {"facts": None}:
        del content["facts"]
    spelled = json.dumps(content, sort_keys=True, indent=1) + "\n"
    content["digest"] = xxhash.xxh3_128_hexdigest(spelled.encode())
    path.write_text(json.dumps(content, sort_keys=True, indent=1) + "\n")
    assert "was made by another version ('meshwright" in told(built)[0]
