"""The JSON record: the nouns under their names, valid by the schema that is documented."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import jsonschema
import nouns
import pytest

from meshwright.api.diagnosing import diagnose
from meshwright.diagnose.diagnosis import Evidence
from meshwright.diagnose.rank import Rank
from meshwright.report.diagnosis.derived import DERIVED
from meshwright.report.diagnosis.record import LEFT_OUT, diagnosis_record
from meshwright.report.diagnosis.schema import schema
from meshwright.report.machine import indented, to_json

ROOT = Path(__file__).parents[3]


def read(found):
    return json.loads(to_json(diagnosis_record(found)))


def empty():
    return replace(nouns.diagnosis(), evidence=Evidence(), second=None, step_us=None, lost_us=None)


@pytest.mark.parametrize(
    "found",
    [nouns.diagnosis(), nouns.diagnosis(1), nouns.diagnosis(8, everything=False), empty()],
    ids=["all", "one", "ranks", "nothing"],
)
def test_records_are_valid_by_the_schema(found):
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(read(found), schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", ["dp2-ep2-deepep", "slow-loader", "gpu-only"])
def test_records_of_traces_are_valid_by_the_schema(name):
    found = diagnose(ROOT / "tests" / "traces" / "made" / name, workers=1)
    jsonschema.validate(read(found), schema(), cls=jsonschema.Draft202012Validator)


def test_the_schema_refuses_what_it_does_not_know():
    record = read(nouns.diagnosis())
    record["ranks"][0]["colour"] = 3
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        jsonschema.validate(record, schema(), cls=jsonschema.Draft202012Validator)
    del record["ranks"][0]["colour"], record["job"]["times_last"]
    with pytest.raises(jsonschema.ValidationError, match="times_last"):
        jsonschema.validate(record, schema(), cls=jsonschema.Draft202012Validator)


def test_a_rank_has_every_field_but_what_pictures_need():
    (first, *_) = read(nouns.diagnosis())["ranks"]
    assert set(first) == {f.name for f in fields(Rank)} - LEFT_OUT["Rank"] | set(DERIVED["Rank"])
    assert first["attribution"]["parts_us"]["exposed_comm"] == 250_000.0
    assert first["collectives"][0]["busbw_GBps_at_min"] == 139.8


def test_what_follows_from_a_noun_is_told_by_its_name():
    record = read(nouns.diagnosis())
    first, pipeline = record["ranks"][0], record["pipeline"]
    assert (first["no_gpu_events"], first["steps"]) == (False, [])
    assert first["principal_by_trace_only_rule"] in first["lost_shares_pct"]
    assert pipeline["workers"] == len(pipeline["by_worker"]) > 1
    assert pipeline["step_ms"] == pipeline["step_span_us_median"] / 1e3


def test_what_a_trace_does_not_tell_of_a_collective_is_null():
    bare = replace(nouns.collective(0, "", "", 1.0), pg_name="", group_size=-1, in_nelems=-1)
    found = nouns.diagnosis(1)
    rank = replace(found.evidence.ranks[0], collectives=(bare,))
    found = replace(found, evidence=replace(found.evidence, ranks=(rank,)))
    record = read(found)
    jsonschema.validate(record, schema(), cls=jsonschema.Draft202012Validator)
    ((told,),) = (one["collectives"] for one in record["ranks"])
    assert [told[k] for k in ("axis", "pg_desc", "pg_name", "group_size", "in_nelems")] == [
        None
    ] * 5
    assert (told["out_nelems"], told["dtype"]) == (8_388_608, "BFloat16")


def test_split_and_groups_stand_once():
    record = read(nouns.diagnosis())
    assert sum(p["us"] for p in record["split"]["parts"]) == pytest.approx(record["step_us"])
    assert len(record["groups"]) == 1


def test_the_schema_is_written_down():
    path = ROOT / "docs" / "reference" / "diagnose-schema.json"
    assert path.read_text(encoding="utf-8") == indented(schema())
