"""How the names and tensors of published weights become those of a model, and back.

transformers 5 keeps, for each family, rules of renaming and of merging (one tensor an expert into
one of all experts) in conversion_mapping.py and core_model_loading.py, both private. The rules are
taken from there and carried out on `Lazy` tensors, so that a rank reads its share alone.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from transformers import core_model_loading as core
from transformers.conversion_mapping import get_model_conversion_mapping

from meshwright.base.errors import MeshwrightError
from meshwright.train.model.lazy import Joined, Narrowed, Selected, Stacked, Transposed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.train.model.lazy import Lazy

Collected = dict[str, "list[Lazy] | Lazy"]


def into_model(model: Any, stored: Mapping[str, Lazy]) -> dict[str, Lazy]:
    """Tensors of files, under the names and in the shapes of a model; others keep their names."""
    renamings, converters = _rules(get_model_conversion_mapping(model))
    known = model.state_dict()
    groups: dict[str, tuple[Any, Collected]] = {}
    found: dict[str, Lazy] = {}
    for key in sorted(stored, key=core.dot_natural_key):
        name, pattern = core.rename_source_key(
            key, renamings, converters, model.base_model_prefix, known
        )
        if name not in known and key in known:
            name, pattern = key, None
        if pattern is None:
            found[name] = stored[key]
            continue
        converter = _with(pattern, converters)
        _, collected = groups.setdefault(name, (converter, defaultdict(list)))
        collected[pattern].append(stored[key])  # type: ignore[union-attr]
    for name, (converter, collected) in groups.items():
        found |= _converted(name, converter, collected, config=model.config)
    return found


def out_of_model(model: Any, held: Mapping[str, Lazy]) -> dict[str, Lazy]:
    """A model's tensors under the names and in the shapes in which its family is published."""
    mapping = get_model_conversion_mapping(model, add_legacy=False)
    kept = [rule for rule in mapping if not isinstance(rule, core.PrefixChange)]
    renamings, converters = _rules([rule.reverse_transform() for rule in kept[::-1]])
    found: dict[str, Lazy] = {}
    for key in sorted(held, key=core.dot_natural_key):
        name, pattern = core.apply_converters(key, converters)
        if pattern is None:
            found[core.apply_renamings(key, renamings)] = held[key]
            continue
        converter = _with(pattern, converters)
        parts = _converted(name, converter, {pattern: [held[key]]}, config=model.config)
        found |= {core.apply_renamings(part, renamings): lazy for part, lazy in parts.items()}
    return found


def ignored_patterns(model: Any) -> tuple[str, ...]:
    """Patterns of names that published weights of a family hold and its model does not use."""
    return (*(model._keys_to_ignore_on_load_unexpected or ()), r"rotary_emb\.inv_freq")


def tied_names(model: Any) -> dict[str, str]:
    """Names of weights that are other ones, by name."""
    tied: dict[str, str] = model.all_tied_weights_keys
    return tied


def _rules(mapping: list[Any]) -> tuple[list[Any], list[Any]]:
    """Renamings and converters apart."""
    return (
        [rule for rule in mapping if isinstance(rule, core.WeightRenaming)],
        [rule for rule in mapping if isinstance(rule, core.WeightConverter)],
    )


def _with(pattern: str, converters: list[Any]) -> Any:
    return next(c for c in converters if pattern in c.source_patterns)


def _converted(name: str, converter: Any, collected: Collected, *, config: Any) -> dict[str, Lazy]:
    """One converter's operations done lazily; names as WeightConverter.convert expands them."""
    for operation in converter.operations:
        collected = _done(operation, collected, converter, config=config)
    full = name.replace("*.", "0.")
    hit = next((key for key in collected if key in full), None)
    if hit is None:
        return {key: _one(lazy) for key, lazy in collected.items()}
    prefix, _, suffix = full.partition(hit)
    return {prefix + key + suffix: _one(lazy) for key, lazy in collected.items()}


def _done(operation: Any, collected: Collected, converter: Any, *, config: Any) -> Collected:
    """One operation on lazy tensors, by pattern, as `convert` of its class has it."""
    sources, targets = converter.source_patterns, converter.target_patterns
    kind = type(operation)
    if kind is core.MergeModulelist:
        return {
            operation.get_target_pattern(len(collected), pattern, targets): Stacked(
                parts=tuple(_many(parts)), dim=operation.dim
            )
            for pattern, parts in collected.items()
        }
    if kind is core.Concatenate:
        parts = [p for s in sources if s in collected for p in _many(collected[s])]
        return {
            operation.get_target_pattern(targets): Joined(parts=tuple(parts), dim=operation.dim)
        }
    if kind is core.Chunk:
        names = operation.get_target_patterns(targets, config=config)
        return dict(_chunks(_one(next(iter(collected.values()))), operation.dim, names))
    if kind is core.SplitModulelist:
        return _split(operation, collected, targets)
    if kind is core.Transpose and not operation.check_dims:
        name = operation.get_target_pattern(collected, sources, targets)
        whole = _one(next(iter(collected.values())))
        return {name: Transposed(whole=whole, dims=(operation.dim0, operation.dim1))}
    raise MeshwrightError(
        f"{kind.__name__}, by which transformers converts weights of {config.model_type}, "
        "is not known",
        hint="save them with `save_pretrained(folder, save_original_format=False)` first",
    )


def _chunks(whole: Lazy, dim: int, names: list[str]) -> list[tuple[str, Lazy]]:
    """torch.chunk into as many parts as names."""
    size = -(-whole.shape[dim] // len(names))
    return [
        (name, Narrowed(whole=whole, dim=dim, first=i * size, length=size))
        for i, name in enumerate(names)
    ]


def _split(operation: Any, collected: Collected, targets: list[str]) -> Collected:
    """One tensor for every index along a dim."""
    found: Collected = {}
    for pattern, lazy in collected.items():
        whole = _one(lazy)
        count = whole.shape[operation.dim]
        names = operation.get_target_patterns(collected, pattern, targets, count)
        for index, name in enumerate(names):
            found[name] = Selected(whole=whole, dim=operation.dim, index=index)
    return found


def _many(parts: list[Lazy] | Lazy) -> list[Lazy]:
    return parts if isinstance(parts, list) else [parts]


def _one(parts: list[Lazy] | Lazy) -> Lazy:
    return parts[0] if isinstance(parts, list) else parts
