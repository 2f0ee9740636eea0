"""Which stated settings another framework's files say too, and which are left behind."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from meshwright.frameworks.inverse import reading_of
from meshwright.frameworks.jobs import SHAPE
from meshwright.frameworks.setting import UNKNOWN
from meshwright.plan.job import Loading, Recipe, Runtime
from meshwright.plan.words import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshwright.frameworks.field import Field
    from meshwright.frameworks.framework import Expressed, Framework
    from meshwright.frameworks.reading import Reading
    from meshwright.frameworks.setting import Setting
    from meshwright.plan.job import Job

NAMELESS = "model"  # a shape that no name is stated for
_NOUNS = {
    **{f.name: "loading" for f in fields(Loading)},
    **{f.name: "runtime" for f in fields(Runtime)},
    **{f.name: "recipe" for f in fields(Recipe)},
}
_WORK = frozenset({"seq_len", "global_batch_size", "packed_mean_len"})
_MACHINE = frozenset({"num_gpus", "num_nodes", "gpus_per_node", "gpu_name", "environment"})
_BATCH = frozenset({"gradient_accumulation_steps", "dp_shard", "dp", "local_batch_size"})
_LENGTH = frozenset({"train_samples", "lr_warmup_samples", "train_tokens"})  # of which one counts
_WHOLE = frozenset({*FIELDS, *SHAPE, *_WORK, *_MACHINE, *_BATCH, *_NOUNS, "model_name"})
_WORDS = {"lr_schedule": frozenset({"cosine", "linear"})}  # words that mean the same everywhere
_KIN = (  # frameworks whose settings of one name mean the same
    frozenset({"hf-trainer", "llama-factory", "axolotl", "ms-swift"}),
    frozenset(
        {"megatron-lm", "mindspeed", "slime", "ms-swift-megatron", "megatron-bridge", "nemo"}
    ),
)
_ARGUMENTS = frozenset({"megatron-lm", "mindspeed"})  # whose defaults count where nothing is said
_BY_SAMPLES = {"--train-iters": "--train-samples"}
_AS_STATED = frozenset({"attention_backend", "lr_warmup_samples"})  # kept in the same framework
_OLD_GROUPS = ("model.data.", "exp_manager.")  # NeMo 1's, of which nothing else is written
_GROUPS = ("model.", "model.config.", "--")
_FEEDS = frozenset(  # variables that fields of the plan or dimensions of the model follow from
    {
        *("recompute_method", "recompute_num_layers", "recompute_activations", "bf16", "fp16"),
        *("gradient_checkpointing", "mixed_precision", "use_distributed_optimizer", "fsdp_version"),
        *("fp8_format", "fp8_recipe", "fp8_param_gather", "grad_reduce_in_bf16", "use_flash_attn"),
        *("accumulate_allreduce_grads_in_fp32", "cross_entropy_loss_fusion", "use_fsdp"),
        *("group_query_attention", "num_query_groups", "normalization", "gated_mlp", "qk_norm"),
        *(
            "position_embedding_type",
            "num_layers_per_virtual_stage",
            "pipeline_layout",
            "use_rms_norm",
        ),
        *(
            "use_rotary",
            "optimizer_offload",
            "exp_avg_dtype",
            "exp_avg_sq_dtype",
            "main_grads_dtype",
        ),
        *(
            "use_precision_aware_optimizer",
            "attention_backend",
            "attn_implementation",
            "cp_comm_type",
        ),
        *("use_liger_kernel", "schedules_method", "pp_style", "num_model_chunks", "overlap_comm"),
        *("tie_word_embeddings", "add_bias_linear", "flash_attention_stated", "grad_sync_dtype"),
        *("use_deepspeed", "zero_stage_stated", "fp8_enabled", "pipeline_dtype", "mini_batch_size"),
        *(
            "max_prompt_len",
            "max_response_len",
            "samples_per_step",
            "train_batch_size",
            "rollout_n",
        ),
        *("train_micro_batch_size_per_gpu", "pipeline_micro_batch_size", "actor_nodes"),
        *("gpus_per_actor_node", "rollout_batch_size", "ulysses", "ac_mode", "sharding_degree"),
        *("liger_fused_loss", "quantized_bits", "rl_backend", "train_iters", "train_samples"),
    }
)
_SPOKEN = (
    frozenset(  # names whose meaning is in the plan or the model, even where nothing cites them
        {
            *("finetuning_type", "tuner_type", "train_type", "torch_dtype", "dtype", "_target_"),
            *("hf_model_id", "fsdp_activation_checkpointing", "pipeline_dtype", "mixed_precision"),
            *("distributed_type", "is_llama_config", "adapter", "strategy", "use_mcore_models"),
        }
    )
)
_DECIDED = (
    _FEEDS - {"train_iters"} | _MACHINE | _BATCH | _WORK | _LENGTH | {"cross_entropy_fusion_impl"}
)
_NUMBERS = ("int", "float")


# What the job does not hold


def with_the_rest(
    reading: Reading, job: Job, expressed: Expressed, target: Framework, version: str
) -> Expressed:
    """What was expressed, with stated variables beside the job for which the target has a field.

    One is written only if it is read back as it was stated, and changes nothing else.
    """
    if expressed.text:
        return expressed
    settings = dict(expressed.settings)
    settings |= _model(reading, job, target, settings)
    if reading.config.framework.name == target.name:
        settings = _as_it_was(reading, job, settings)
    more = _namesakes(reading, target, version, settings)
    more |= _candidates(reading, target, version, settings)
    base = _facts(target, version, settings, job)
    if not _agrees(reading, target, version, settings, more, base=base, job=job):
        more = {
            n: pair
            for n, pair in more.items()
            if _agrees(reading, target, version, settings, {n: pair}, base=base, job=job)
        }
    return replace(expressed, settings=settings | {n: value for n, (_, value) in more.items()})


def _as_it_was(reading: Reading, job: Job, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of Megatron's own arguments as the source words them, where both mean the same.

    A run is as long in samples as in iterations, but only one of them may be stated, and warm-up
    goes with it; a multiple of the vocabulary stays where it pads to the plan's rows.
    """
    config, kept = reading.config, dict(settings)
    samples = config.stated("--train-samples")
    if samples is not None and samples is not UNKNOWN and "--train-iters" in kept:
        kept = {_BY_SAMPLES.get(name, name): value for name, value in kept.items()}
        kept["--train-samples"] = samples
    multiple = config.stated("--make-vocab-size-divisible-by")
    if isinstance(multiple, int) and multiple > 0:
        plan, size = job.plan.row(0), job.model.vocab_size
        rows = -(-size // (multiple * int(plan.tp))) * multiple * int(plan.tp)
        if plan.padded_vocab_size in (0, rows):
            kept["--make-vocab-size-divisible-by"] = multiple
    return kept


def without_guesses(reading: Reading, job: Job, expressed: Expressed) -> Expressed:
    """What was expressed without numbers of a publisher that the source does not have.

    Megatron's own arguments leave the defaults where they state nothing (what they state comes
    with the rest), and a model that only its shape names may be another one's sibling.
    """
    from meshwright.frameworks.megatron_lm.trained import NAMES, PUBLISHED

    own = reading.config.framework.name in _ARGUMENTS
    away = NAMES if own else PUBLISHED if job.model.name == NAMELESS else ()
    kept = {name: value for name, value in expressed.settings.items() if name not in away}
    return replace(expressed, settings=kept)


def _model(
    reading: Reading, job: Job, target: Framework, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The model by the name that the source gives it, or by the one its publisher does."""
    if target.name == "torchtitan":  # whose registry has names of its own
        return {}
    written = [n for n, v in settings.items() if isinstance(v, str) and v == job.model.name]
    name = reading.value("model_name")
    stated = name if isinstance(name, str) and "/" in name else ""
    if written and not stated:
        stated = hub_name(job.model.name)
    return {field: stated for field in written if stated}


def hub_name(name: str) -> str:
    """The name of a preset on the hub, "" for a model that has none."""
    from meshwright.base.errors import MeshwrightError
    from meshwright.model.catalogue import preset_hub_name

    try:
        return preset_hub_name(name)
    except (MeshwrightError, OSError):
        return ""


def _candidates(
    reading: Reading, target: Framework, version: str, settings: Mapping[str, Any]
) -> dict[str, tuple[str, Any]]:
    """Fields of the target that could say what is stated: variable and value by field."""
    found: dict[str, tuple[str, Any]] = {}
    for variable, value in reading.values.items():
        if not value.settings or value.value is UNKNOWN or value.value is None:
            continue
        if variable in FIELDS or variable in SHAPE or variable in _DECIDED:
            continue
        if variable == "ckpt_load" and not _are_kin(reading, target):
            continue  # a checkpoint of another format
        fields_ = target.table.of_variable(variable, version)
        if not fields_ or variable == "model_name" or any(f.name in settings for f in fields_):
            continue
        chosen = next((f for f in fields_ if _takes(f, value.value)), None)
        if chosen is not None and not _is_nested(chosen.name, settings):
            found[chosen.name] = (variable, _as_written(chosen, value.value))
    return {
        n: (variable, value)
        for n, (variable, value) in found.items()
        if variable not in _WORDS or value in _WORDS[variable]
    }


def _namesakes(
    reading: Reading, target: Framework, version: str, settings: Mapping[str, Any]
) -> dict[str, tuple[str, Any]]:
    """Fields of kin that have the name of a stated setting which sets no shared variable."""
    source = reading.config.framework
    kin = next((group for group in _KIN if source.name in group), frozenset({source.name}))
    if target.name not in kin:
        return {}
    found: dict[str, tuple[str, Any]] = {}
    for setting in reading.config.settings.values():
        own = source.table.find(setting.name, reading.config.version)
        if own is None or setting.value in (UNKNOWN, None):
            continue
        kept = source.name == target.name and own.variable in _AS_STATED
        away = own.variable in _WHOLE | _LENGTH or own.name.endswith("samples")
        if away and not kept:
            continue
        field = _namesake(setting.name, target, version)
        if field is None or settings.get(field.name) == setting.value:
            continue
        if _is_nested(field.name, settings):
            continue
        if own.variable in _DECIDED and field.name not in settings and not kept:
            continue
        if field.variable != own.variable or _is_file_beside(reading, setting):
            continue
        if field.type == "off-flag" and not field.variable and setting.value is True:
            found[field.name] = ("", True)
        elif _takes(field, setting.value):
            found[field.name] = (field.variable, _as_written(field, setting.value))
    return found


def _are_kin(reading: Reading, target: Framework) -> bool:
    """Whether source and target write checkpoints of one format."""
    names = {reading.config.framework.name, target.name}
    return len(names) == 1 or any(names <= group for group in _KIN)


def _namesake(name: str, target: Framework, version: str) -> Field | None:
    """The target's field of a name, whatever group it stands in."""
    plain = name.lstrip("-").replace("-", "_").rpartition(".")[2]
    for spelling in (name, plain, *(group + plain for group in _GROUPS)):
        field = target.table.find(spelling, version)
        if field is not None and field.exists_in(version):
            return field
    return None


def _is_file_beside(reading: Reading, setting: Setting) -> bool:
    """Whether a setting names a file that is read as a part."""
    files = [p.config.sources[0].file for p in reading.config.parts if p.config.sources]
    return any(str(setting.value).rpartition("/")[2] == f.rpartition("/")[2] for f in files)


def _is_nested(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a name is a group of what is written, or lies below one of its values."""
    path = name.split(".")
    above = {".".join(path[:i]) for i in range(1, len(path))}
    return bool(above & {*settings}) or any(n.startswith(name + ".") for n in settings)


def _as_written(field: Field, value: Any) -> Any:
    """A value as the field takes it, whole numbers without a point."""
    typed = field.read(value)[0]
    counts = field.type == "int" or field.variable.endswith(("_steps", "_epochs"))
    return int(typed) if counts and isinstance(typed, float) and typed.is_integer() else typed


def _takes(field: Field, value: Any) -> bool:
    """Whether a field can state a value."""
    if field.type in ("flag", "off-flag"):
        return value is (field.type == "flag")
    if field.type == "bool":
        return isinstance(value, bool)
    if field.type in _NUMBERS and isinstance(value, bool | str | list | dict):
        return False
    if isinstance(value, str) and field.choices and value not in field.choices:
        return False
    if field.name.endswith(".*") or field.name.startswith(_OLD_GROUPS):
        return False
    return not field.read(value)[1]


def _facts(
    target: Framework, version: str, settings: Mapping[str, Any], job: Job
) -> dict[str, Any]:
    """Everything of the job that settings say, and what else they are read as."""
    gpus = job.cluster.num_gpus
    return {
        n: v.value for n, v in reading_of(target, version, settings, num_gpus=gpus).values.items()
    }


def _agrees(
    reading: Reading,
    target: Framework,
    version: str,
    settings: Mapping[str, Any],
    more: Mapping[str, tuple[str, Any]],
    *,
    base: Mapping[str, Any],
    job: Job,
) -> bool:
    """Whether more settings say what is meant, and nothing else."""
    wanted = {variable: value for variable, value in more.values() if variable}
    extended = {**settings, **{n: value for n, (_, value) in more.items()}}
    facts = _facts(target, version, extended, job)
    if any(facts.get(variable) != value for variable, value in wanted.items()):
        return False
    kept = [n for n in _WHOLE if n not in wanted and n not in ("train_tokens",)]
    return all(
        facts.get(n) == base.get(n) or reading.is_stated(n) for n in kept if n in _WORK
    ) and (all(facts.get(n) == base.get(n) for n in (*FIELDS, *SHAPE)))


# What was carried


def left_behind(
    before: Reading,
    after: Reading,
    jobs: tuple[Job, Job],
    *,
    changed: Iterable[str],
    but: Iterable[str],
) -> tuple[list[Setting], list[Setting], int]:
    """Lost settings that bear on the job, other lost ones, and the number of carried ones.

    `changed` are fields of the plan that are said to change, `but` variables that are told of
    elsewhere.
    """
    variables: dict[str, list[str]] = {}
    for name, value in before.values.items():
        for setting in value.settings:
            variables.setdefault(setting.name, []).append(name)
    plain: list[Setting] = []
    bearing: list[Setting] = []
    told, carried = {*changed, *but}, 0
    again = {(*_plain(s.spelled), str(s.value)) for s in stated_settings(after)}
    for setting in stated_settings(before):
        names = variables.get(setting.name, [])
        same = (*_plain(setting.spelled), str(setting.value)) in again
        if not names and (same or _plain(setting.spelled)[0] in _SPOKEN):
            carried += 1
            continue
        if told & {*names}:
            continue
        held = [n for n in names if n in _WHOLE]
        if _is_carried(names, held, before, after, jobs):
            carried += 1
        else:
            (bearing if held else plain).append(setting)
    return bearing, plain, carried


def _plain(spelled: str) -> tuple[str]:
    """The last part of a name, without what does not tell names apart."""
    return (spelled.lstrip("-+").replace("-", "_").lower().rpartition(".")[2],)


def stated_settings(reading: Reading) -> list[Setting]:
    """Every setting that a configuration and its parts state, once; references aside."""
    config = reading.config
    found = [*config.settings.values(), *config.unknown]
    for part in config.parts:
        found += stated_settings(part)
    unique = {(s.source.file, s.key.start, s.name): s for s in found}
    files = {p.config.sources[0].file.rpartition("/")[2] for p in config.parts if p.config.sources}
    return [s for s in unique.values() if str(s.value).rpartition("/")[2] not in files]


def _is_carried(
    names: Sequence[str],
    held: Sequence[str],
    before: Reading,
    after: Reading,
    jobs: tuple[Job, Job],
) -> bool:
    """Whether what a setting says is said again: in the job, or as the same variable."""
    if any(n in FIELDS or n in SHAPE for n in held):
        return True  # the plan's changes are told
    if held:
        return all(_is_same(n, before, after, jobs) for n in held)
    if _FEEDS & {*names}:
        return True  # what follows from it is in the plan, whose changes are told
    return any(_is_close(before.value(n), after.value(n)) for n in names)


def _is_same(name: str, before: Reading, after: Reading, jobs: tuple[Job, Job]) -> bool:
    if (
        name in FIELDS
        or name in SHAPE
        or name in _MACHINE
        or name in _BATCH
        or name == "model_name"
    ):
        return True  # the plan's changes are told; model and machine are written whole
    first, second = jobs
    if name in _WORK:
        return _is_close(getattr(first.workload, name), getattr(second.workload, name))
    noun = _NOUNS[name]
    own = getattr(getattr(first.workload, noun), name)
    theirs = getattr(getattr(second.workload, noun), name)
    return (
        own == theirs or _is_close(own, theirs) or _is_close(before.value(name), after.value(name))
    )


def _is_close(first: Any, second: Any) -> bool:
    if isinstance(first, float | int) and isinstance(second, float | int):
        return abs(first - second) <= 0.01 * max(abs(first), abs(second))
    return first is not None and bool(first == second)
