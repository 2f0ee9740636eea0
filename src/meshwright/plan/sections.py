"""The sections of plan.toml, each read into its noun; what is wrong is noted in the decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.decode import REFUSED, Decoder
from meshwright.base.errors import InvalidInput, InvalidUnit, MeshwrightError
from meshwright.base.units import parse_tokens
from meshwright.hardware.cluster import Cluster
from meshwright.model.architecture import Model
from meshwright.plan.batch import sequences_for
from meshwright.plan.job import Loading, Runtime, Workload
from meshwright.plan.plan import Plan
from meshwright.plan.words import FIELDS, INTERLEAVED, LARGEST, read_word

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.base.locate import Key

PRICED_HERE = "given in the cluster file"  # price_source of a price that the user states
_MODEL, _CLUSTER, _WORKLOAD, _PLAN = ("model",), ("cluster",), ("workload",), ("plan",)
WORKLOAD_KEYS = (
    "seq_len",
    "global_batch",
    "global_batch_size",
    "train_tokens",
    "packed_mean_len",
    "loading",
    "runtime",
)
_DESCRIBING = frozenset({"model_type", "architectures", "hidden_size"})  # keys of a config.json
_MODEL_HINT = 'name = "llama-3-8b", path = "config.json", or the keys of a config.json'
_POSITIVE = frozenset(
    {"hidden_size", "vocab_size", "count", "num_attention_heads", "num_key_value_heads"}
    | {"head_dim", "v_head_dim", "intermediate_size", "num_experts", "top_k", "num_gpus"}
    | {"gpus_per_node", "domain", "bytes_per_s", "memory_bytes", "memory_bytes_per_s"}
    | {"oversubscription", "bytes_per_s_per_gpu"}
)


# Model


def read_model(decoder: Decoder, folder: Path) -> Any:
    """The `Model` of [model]: a preset by name, a config.json by path, or keys; or REFUSED."""
    table = decoder.table(_MODEL)
    if not table:
        return REFUSED
    if "runs" in table:
        return _checked_record(decoder, Model, _MODEL)
    if "path" in table or set(table) == {"name"}:
        return _named_model(decoder, folder)
    if not _DESCRIBING & set(table):
        return decoder.missing((*_MODEL, "name"), hint=_MODEL_HINT)
    from meshwright.model.config import model_from_config

    config = {name: value for name, value in table.items() if name != "name"}
    name = str(table.get("name", "")) or "model"

    def read() -> Model:
        return model_from_config(
            config,
            name=name,
            locate=lambda problem: decoder.document.problem(problem, under=_MODEL),
        )

    return _noted(decoder, _MODEL, read)


def _named_model(decoder: Decoder, folder: Path) -> Any:
    from meshwright.model.catalogue import load

    key = "path" if "path" in decoder.table(_MODEL) else "name"
    decoder.unknown_keys(_MODEL, ("name", "path"))
    name = decoder.value(str, (*_MODEL, key))
    if name is REFUSED:
        return REFUSED
    wanted = str(folder / name) if key == "path" else name
    return _noted(decoder, (*_MODEL, key), lambda: load(wanted))


# Cluster


def read_cluster(decoder: Decoder, folder: Path) -> Any:
    """The `Cluster` of [cluster]: as a cluster file has it, by path, or in full; or REFUSED."""
    table = decoder.table(_CLUSTER)
    if not table:
        return REFUSED
    if "num_gpus" in table:
        return _checked_record(decoder, Cluster, _CLUSTER)
    if "path" in table:
        return _cluster_file(decoder, folder)
    from meshwright.hardware.table import cluster_from_table

    return _noted(decoder, _CLUSTER, lambda: cluster_from_table(table))


def _cluster_file(decoder: Decoder, folder: Path) -> Any:
    from meshwright.hardware.file import read_cluster as read_cluster_file

    decoder.unknown_keys(_CLUSTER, ("path",))
    name = decoder.value(str, (*_CLUSTER, "path"))
    if name is REFUSED:
        return REFUSED
    return _noted(decoder, (*_CLUSTER, "path"), lambda: read_cluster_file(folder / name))


# Workload


def read_workload(decoder: Decoder) -> Any:
    """The `Workload` of [workload], or REFUSED."""
    table = decoder.table(_WORKLOAD)
    if not table:
        return REFUSED
    before = len(decoder.findings)
    decoder.unknown_keys(_WORKLOAD, WORKLOAD_KEYS)
    seq_len = _count(decoder, "seq_len", hint="tokens of one sequence, as seq_len = 8192")
    batch = _global_batch(decoder, seq_len)
    optional = _optional_workload(decoder)
    if len(decoder.findings) > before:
        return REFUSED
    return Workload(seq_len=seq_len, global_batch_size=batch, **optional)


def _optional_workload(decoder: Decoder) -> dict[str, Any]:
    """The entries of [workload] that may be left out."""
    table = decoder.table(_WORKLOAD)
    found: dict[str, Any] = {}
    for name in ("train_tokens", "packed_mean_len"):
        if name in table:
            found[name] = _tokens(decoder, (*_WORKLOAD, name))
    for name, noun in (("loading", Loading), ("runtime", Runtime)):
        if name in table:
            found[name] = decoder.record(noun, (*_WORKLOAD, name))
    return found


def _count(decoder: Decoder, name: str, *, hint: str) -> Any:
    key = (*_WORKLOAD, name)
    if name not in decoder.table(_WORKLOAD):
        return decoder.missing(key, hint=hint)
    value = decoder.value(int, key)
    if value is not REFUSED and not 1 <= value <= LARGEST:
        return decoder.refuse(key, f"is not between 1 and {LARGEST}", hint=hint)
    return value


def _global_batch(decoder: Decoder, seq_len: Any) -> Any:
    """Sequences a step, stated as such or in tokens."""
    table = decoder.table(_WORKLOAD)
    name = "global_batch_size" if "global_batch_size" in table else "global_batch"
    key = (*_WORKLOAD, name)
    value = table.get(name)
    if not isinstance(value, str):
        return _count(decoder, name, hint='sequences a step, or tokens, as global_batch = "4Mtok"')
    if "tok" not in value:
        return decoder.refuse(key, "does not say of what", hint=f'write "{value}tok" or a number')
    tokens = _tokens(decoder, key)
    if tokens is REFUSED or seq_len is REFUSED:
        return REFUSED
    return sequences_for(tokens, seq_len)


def _tokens(decoder: Decoder, key: Key) -> Any:
    """A positive number of tokens, from a number or from text such as "15T"."""
    value = decoder.document.value(key)
    if not isinstance(value, str | int | float):
        return decoder.refuse(key, "is no number of tokens", hint='write it as "15T"')
    try:
        tokens = parse_tokens(value)
    except InvalidUnit as error:
        return decoder.refuse(key, "is no number of tokens", hint=error.hint)
    return (
        tokens if tokens > 0 else decoder.refuse(key, "is not positive", hint='write it as "15T"')
    )


# Plan


def read_plan(decoder: Decoder, *, num_gpus: int | None) -> Any:
    """The `Plan` of [plan]; `dp` follows from `num_gpus` when it is left out. Or REFUSED."""
    table = decoder.table(_PLAN)
    before = len(decoder.findings)
    decoder.unknown_keys(_PLAN, FIELDS)
    values = {name: _plan_value(decoder, name) for name in table if name in FIELDS}
    if values.get("vpp", 1) == 1 and table.get("schedule") == INTERLEAVED:
        hint = 'set vpp to 2 or more, or schedule = "1f1b"'
        decoder.refuse((*_PLAN, "schedule"), "needs vpp above 1", hint=hint)
    if len(decoder.findings) > before:
        return REFUSED
    if "dp" not in values and num_gpus is not None:
        values["dp"] = _derived_dp(decoder, values, num_gpus)
    return REFUSED if len(decoder.findings) > before else Plan(**values)


def _plan_value(decoder: Decoder, name: str) -> Any:
    value, problem = read_word(name, decoder.document.value((*_PLAN, name)))
    if problem:
        return decoder.refuse((*_PLAN, name), problem.reason, hint=problem.hint)
    return value


def _derived_dp(decoder: Decoder, values: dict[str, Any], num_gpus: int) -> Any:
    """GPUs over tp*pp*cp, or a finding when that is no whole number."""
    model_parallel = values.get("tp", 1) * values.get("pp", 1) * values.get("cp", 1)
    if num_gpus % model_parallel == 0:
        return num_gpus // model_parallel
    reason = f"is missing and cannot be {num_gpus} GPUs / (tp*pp*cp = {model_parallel})"
    hint = f"choose tp, pp and cp so that their product divides {num_gpus}"
    finding = decoder.document.finding(_PLAN, f"plan.dp {reason}", reason=reason, hint=hint)
    decoder.findings.append(finding.replace(value=None))
    return REFUSED


# Stack


def read_stack(decoder: Decoder) -> Any:
    """The stack's name, from `stack = "..."` or `name` in [stack]; "default" when left out."""
    value = decoder.document.value(("stack",))
    if value is None:
        return "default"
    if isinstance(value, dict):
        decoder.unknown_keys(("stack",), ("name",))
        return decoder.value(str, ("stack", "name"))
    return decoder.value(str, ("stack",))


# Shared


def _noted(decoder: Decoder, key: Key, read: Any) -> Any:
    """What `read` returns; its errors become findings, at `key` unless they are placed already."""
    try:
        return read()
    except InvalidInput as error:
        decoder.findings.extend(error.findings)
    except MeshwrightError as error:
        _note_error(decoder, key, error)
    return REFUSED


def _note_error(decoder: Decoder, key: Key, error: MeshwrightError) -> None:
    """One finding for an error, or one for each of its `problems`."""
    problems = getattr(error, "problems", ())
    if problems:
        decoder.findings.extend(decoder.document.problem(p, under=key) for p in problems)
        return
    finding = decoder.document.finding(key, error.message, reason=error.message, hint=error.hint)
    decoder.findings.append(finding)


def _checked_record(decoder: Decoder, noun: type, key: Key) -> Any:
    """A noun written out in full, its figures checked to be possible ones."""
    before = len(decoder.findings)
    value = decoder.record(noun, key)
    _check_figures(decoder, key)
    return REFUSED if len(decoder.findings) > before else value


def _check_figures(decoder: Decoder, key: Key) -> None:
    """Notes every number below `key` that no model or machine can have."""
    value = decoder.document.value(key)
    if isinstance(value, dict | list):
        for step in value if isinstance(value, dict) else range(len(value)):
            _check_figures(decoder, (*key, step))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least = "positive" if key[-1] in _POSITIVE else "zero or more"
        if value < 0 or (value == 0 and key[-1] in _POSITIVE):
            decoder.refuse(key, f"must be {least}", hint="or leave the key out")
        elif value > 1e18:
            decoder.refuse(key, "is absurdly large", hint="it must be at most 1e18")
