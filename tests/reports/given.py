"""What a user has beside the config, from a case's facts: model, hardware, framework, version.

Only `model`, `hardware`, `gpus`, `version` of the facts and the case's `framework` are looked at.
Hardware is free text ("A100 80GB, 2 nodes"); names are those that the product's catalogues know.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshwright import api
from meshwright.base.errors import MeshwrightError
from meshwright.hardware.catalogue import gpu as known_gpu
from meshwright.hardware.cluster import Cluster
from meshwright.hardware.records import record, records
from meshwright.model.catalogue import load, presets, resolve
from meshwright.model.config import model_from_config
from meshwright.model.count import parameters

NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "eight": 8, "single": 1}
NUMBER = r"(\d+|one|two|three|four|eight|single)"
GRID = rf"{NUMBER}\s+nodes?\s*x\s*(\d+)"


@dataclass(frozen=True, kw_only=True)
class Given:
    """Arguments of a check. `model` is a preset's name or the contents of a config.json.

    `sets` are single variables, where the facts do not make a whole model or cluster. A model that
    is known by its size alone is a guess, which gives way to what the input itself states.
    """

    model: str | Mapping[str, Any] | None = None
    gpus: str | Cluster | None = None
    frameworks: tuple[str, ...] = ()
    version: str = ""
    sets: Mapping[str, Any] = field(default_factory=dict)
    model_is_a_guess: bool = False

    def without_model(self) -> Given:
        """The same, of an input that states its own model."""
        return replace(self, model=None, model_is_a_guess=False)


def given_of(case: Mapping[str, Any]) -> Given:
    """What the case's user has."""
    facts: Mapping[str, Any] = case.get("facts") or {}
    hardware, count = str(facts.get("hardware") or ""), facts.get("gpus")
    model, gpus = model_of(facts.get("model")), gpus_of(hardware, count)
    frameworks = frameworks_of(str(case.get("framework") or ""))
    sets = {} if model else partial_model(facts.get("model"))
    if not isinstance(gpus, Cluster):
        sets |= counted(hardware, count)
    return Given(
        model=model,
        gpus=gpus,
        frameworks=frameworks,
        version=version_of(str(facts.get("version") or ""), frameworks),
        sets=sets,
        model_is_a_guess=model is not None and is_guessed(facts.get("model")),
    )


# Model


def is_guessed(stated: Any) -> bool:
    """Whether the facts tell no more of a model than a size that no preset goes by."""
    if isinstance(stated, Mapping):
        dimensions, name = set(stated), str(stated.get("name") or "")
    else:
        dimensions = set(dimensions_in(str(stated)))
        name = re.split(r"[(,:]", str(stated))[0].strip()
    return not {"layers", "hidden"} <= dimensions and preset_of(name, exactly=True) is None


KEYS = {  # HF names by the words of the facts
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "hidden_size": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
    "tied": "tie_word_embeddings",
}
EXPERT_KEYS = {
    "experts": "num_experts",
    "topk": "num_experts_per_tok",
    "top_k": "num_experts_per_tok",
    "moe_ffn": "moe_intermediate_size",
    "expert_ffn": "moe_intermediate_size",
}
IN_TEXT = {
    "layers": r"(\d+)[ -]layers?",
    "hidden": r"hidden(?: size)? (\d+)",
    "heads": r"(\d+) (?:attention |query )?heads?",
    "kv_heads": r"(\d+) KV heads?",
    "head_dim": r"head[ _]dim (\d+)",
    "ffn": r"(?:ffn|intermediate)(?: size)? (\d+)",
    "vocab": r"vocab(?:ulary)?(?: size)? (\d+)",
    "experts": r"(\d+) (?:routed )?experts",
    "topk": r"top-(\d+)",
}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*[Bb]\b")
PARAMETERS = re.compile(r"(\d+(?:\.\d+)?)e9 param")
USUAL_VOCABULARY = 32000
NEAR = 0.15  # of a size by which alone a model is known


def model_of(stated: Any) -> str | Mapping[str, Any] | None:
    """A preset that the facts name, a config.json of their dimensions, or None."""
    if isinstance(stated, Mapping):
        return _by_dimensions(dict(stated))
    if not isinstance(stated, str):
        return None
    dimensions = dimensions_in(stated)
    name = re.split(r"[(,:]", stated)[0].strip()
    if {"layers", "hidden"} <= set(dimensions):
        return _by_dimensions({"name": name, **dimensions})
    preset = preset_of(name)
    if preset is not None and not _is_as_stated(preset, dimensions):
        return None
    return preset or _by_size(stated)


def _is_as_stated(preset: str, dimensions: Mapping[str, int]) -> bool:
    """Whether a preset has the depth and the width that a text states."""
    model = load(preset)
    heads = model.layers[0].attention.num_attention_heads
    own = {"layers": model.num_hidden_layers, "hidden": model.hidden_size, "heads": heads}
    return all(dimensions.get(name, size) == size for name, size in own.items())


def dimensions_in(text: str) -> dict[str, int]:
    """Dimensions that a text names, as "40 layers, hidden 5120"."""
    return {
        key: int(found[1])
        for key, pattern in IN_TEXT.items()
        if (found := re.search(pattern, text, re.IGNORECASE))
    }


def partial_model(stated: Any) -> dict[str, Any]:
    """Variables for the dimensions that are stated, where they do not make a model."""
    known = dimensions_in(stated) if isinstance(stated, str) else stated
    if not isinstance(known, Mapping):
        return {}
    names = KEYS | EXPERT_KEYS
    return {names[k]: v for k, v in known.items() if k in names and v is not None}


def preset_of(name: str, *, exactly: bool = False) -> str | None:
    """The preset that a name means, also where it says more than family and size."""
    bare = re.sub(r"\(.*?\)", "", name).strip()
    size = None if exactly else re.search(r"\d+(?:\.\d+)?[BbMm](?:-A\d+(?:\.\d+)?[Bb])?", bare)
    spellings = [bare, bare.split(" ")[0]]
    if size:
        family = re.split(r"[- ]", bare)[0]
        spellings.append(f"{family}-{size[0]}")
        spellings.append(bare[: size.end()])
    for spelling in spellings:
        try:
            return resolve(spelling)
        except MeshwrightError:
            continue
    return None


def _by_size(text: str) -> str | Mapping[str, Any] | None:
    """The dense preset nearest to a size, where the facts know a model by its size alone.

    Where none is near, a decoder of that size with 128 of width for each layer.
    """
    found = PARAMETERS.search(text) or re.search(r"\b(\d+(?:\.\d+)?)B\b(?!-A\d)", text)
    if found is None:
        return None
    wanted = float(found[1]) * 1e9
    dense = [name for name in presets() if not load(name).is_moe]
    off = {n: abs(math.log(parameters(load(n)).total / wanted)) for n in dense}
    nearest = min(dense, key=off.__getitem__)
    if off[nearest] < NEAR:
        return nearest
    layers = max(round((wanted / (12 * 128**2)) ** (1 / 3)), 1)
    own = {"num_hidden_layers": layers, "hidden_size": 128 * layers}
    return _completed(own, "", wanted)


def _by_dimensions(stated: dict[str, Any]) -> str | Mapping[str, Any] | None:
    """A config.json of the stated dimensions, completed by the preset of the name, if it is one."""
    name = str(stated.get("name") or "")
    preset = preset_of(name)
    own = {KEYS[k]: v for k, v in stated.items() if k in KEYS and v is not None}
    experts = {EXPERT_KEYS[k]: v for k, v in stated.items() if k in EXPERT_KEYS and v is not None}
    total = float(stated.get("params_b") or 0) or float(stated.get("params_m") or 0) / 1000
    if "num_hidden_layers" not in own or "hidden_size" not in own:
        return preset or (_by_size(f"{total:g}e9 parameters") if total else None)
    if preset is not None and _agrees(preset, own):
        return preset
    if experts:
        return preset  # experts need more than the facts say
    return _completed(own, name, total * 1e9)


def _agrees(preset: str, own: Mapping[str, Any]) -> bool:
    """Whether a preset has the stated depth and width."""
    model = load(preset)
    return (model.num_hidden_layers, model.hidden_size) == (
        own["num_hidden_layers"],
        own["hidden_size"],
    )


def _completed(own: dict[str, Any], name: str, total: float) -> Mapping[str, Any]:
    """A config.json; the MLP's width follows from the number of parameters where that is stated."""
    config: dict[str, Any] = {
        "num_attention_heads": max(own["hidden_size"] // 128, 1),
        "vocab_size": USUAL_VOCABULARY,
        **own,
    }
    kind = re.match(r"[A-Za-z]+", name)
    config["model_type"] = kind[0].lower() if kind else "llama"
    if "intermediate_size" not in config:
        config["intermediate_size"] = _width(config, total)
    return config


def _width(config: Mapping[str, Any], total: float) -> int:
    """The width of a gated MLP with which the model has `total` parameters, 4 * hidden unknown."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    if not total:
        return 4 * int(hidden)
    thin = {**config, "model_type": "llama", "intermediate_size": 1}
    rest = total - parameters(model_from_config(thin)).total
    return max(round(rest / (3 * hidden * layers) / 64) * 64, 64)


def model_argument(model: str | Mapping[str, Any] | None, folder: Path) -> str | None:
    """What to type behind --model: a name, or a file that is written into `folder`."""
    if model is None or isinstance(model, str):
        return model
    path = folder / "config.json"
    path.write_text(json.dumps(dict(model), indent=1), encoding="utf-8")
    try:
        load(path)
    except MeshwrightError:  # a family that is not known by its name is read as Llama's kin
        path.write_text(json.dumps({**model, "model_type": "llama"}, indent=1), encoding="utf-8")
    return str(path)


# Hardware

DEVICE = re.compile(
    r"(?:\b|(?<=\dx)|(?<=\d\*))(?:(?:RTX|GeForce RTX|Tesla|NVIDIA|AMD|Instinct)\s+)?"
    r"(GH200|GB200|GB300|[ABHLVT]\d{1,4}[A-Za-z]{0,2}(?: NVL)?|RTX ?(?:PRO )?\d{4}(?: ?Ti| Ada)?|"
    r"[2-5]0[6-9]0(?: ?Ti)?|MI\d{3}X?|TPU ?v\d[a-z]?|Ascend ?910\w?)"
    r"(?:-SXM\d?|-PCIe)?\b",
    re.IGNORECASE,
)
MEMORY = re.compile(r"(\d+)\s*Gi?B\b(?!\s*/s|\s*(?:of )?(?:host|CPU|system|RAM))", re.IGNORECASE)
HOST = re.compile(
    r"(\d+(?:\.\d+)?)\s*([GT])i?B\s*(?:of\s+)?(?:host|CPU|system)?[ -]*(?:RAM|memory|host)\b",
    re.IGNORECASE,
)
STORAGE = re.compile(
    r"(?:disk|storage|file ?system|NVMe|SSD|Lustre)\D{0,20}?(\d+(?:\.\d+)?)\s*GB/s", re.IGNORECASE
)
FABRICS = (  # by what people call a network; the first that is found
    (r"(10|25|100)\s*(?:Gb(?:it)?/?s?\s*)?(?:GbE|Ethernet|G?igE)", r"ethernet-\1"),
    (r"\bEthernet\b|\bTCP\b", "ethernet-25"),
    (r"\bHDR", "ib-hdr-200"),
    (r"\bEDR", "ib-edr-100"),
    (r"\bNDR", "ib-ndr-400"),
    (r"\bRoCE", "roce-400"),
    (r"\bEFA", "efa-400"),
    (r"\bSlingshot", "slingshot-200"),
)


def gpus_of(hardware: str, count: Any) -> str | Cluster | None:
    """The cluster that the facts describe; the device alone where they do not say how many."""
    device = device_of(hardware)
    if device is None:
        return None
    total, per_node, nodes = counts_of(hardware, count)
    if total is None:
        return device
    per_node = min(per_node or 8, total)
    nodes = nodes if nodes and nodes * per_node >= total else -(-total // per_node)
    node = bare_node(device) if "PCIe" in hardware and "NVLink bridge" not in hardware else None
    try:
        built = api.cluster(
            f"{device}:{per_node}", nodes=nodes, fabric=fabric_of(hardware), node=node
        )
    except MeshwrightError:
        return f"{device}:{per_node}"
    host = built.host
    if found := HOST.search(hardware):
        size = float(found[1]) * (1e12 if found[2].upper() == "T" else 1e9)
        host = replace(host, memory_bytes=size)
    if found := STORAGE.search(hardware):
        host = replace(host, storage_bytes_per_s=float(found[1]) * 1e9)
    return replace(built, host=host, num_gpus=total)


def counted(hardware: str, count: Any) -> dict[str, int]:
    """Variables for the numbers of GPUs and nodes that are stated."""
    total, per_node, nodes = counts_of(hardware, count)
    stated = {"num_gpus": total, "gpus_per_node": per_node, "num_nodes": nodes}
    return {name: value for name, value in stated.items() if value}


def bare_node(device: str) -> str | None:
    """A node that joins the device by PCIe alone."""
    slug = record("gpus", device)["slug"]
    fitting = (n for n in records("nodes") if slug in n["gpus"])
    return next(
        (n["slug"] for n in fitting if all(link["kind"] == "pcie" for link in n["links"])), None
    )


def device_of(hardware: str) -> str | None:
    """The device, as the catalogue spells it; by memory alone the most common one."""
    found = DEVICE.search(hardware)
    memory = MEMORY.search(hardware)
    size = f"-{memory[1]}GB" if memory else ""
    if found is None:
        return _first_known([f"A100{size}", f"H100{size}"]) if size else None
    name = re.sub(r"\s+", "-", found[1])
    if name[:1].isdigit():
        name = f"RTX-{name}"
    pcie = "PCIe" in hardware
    suffixes = ("-PCIe", "") if pcie else ("",)
    spellings = [f"{name}{s}{suffix}" for suffix in suffixes for s in (size, "-80GB", "")]
    spellings += [re.sub(r"-?Ti$", "", name, flags=re.IGNORECASE)]  # as much memory, nearly as fast
    return _first_known(spellings)


def _first_known(spellings: list[str]) -> str | None:
    for spelling in spellings:
        try:
            return known_gpu(spelling).name
        except MeshwrightError:
            continue
    return None


def counts_of(hardware: str, count: Any) -> tuple[int | None, int | None, int | None]:
    """(GPUs, GPUs of a node, nodes); a count that is a range or a change is not known."""
    per_node = _number(r"(\d+)(?:\s+GPUs)?\s+(?:per|a)\s+node", hardware)
    times = re.search(r"(\d+)\s*x\s*[A-Z]", hardware)
    if "per node" in hardware and times and per_node is None:
        per_node = int(times[1])
    total = exact_count(count)
    if total is None and count is not None and not re.search(GRID, str(count)):
        return None, per_node, None
    grid = re.search(GRID, f"{count}; {hardware}")
    if grid:
        return _value(grid[1]) * int(grid[2]), int(grid[2]), _value(grid[1])
    nodes = _number(rf"(?<!least ){NUMBER}\s+nodes?\b", hardware)
    if total is None:
        total = _number(r"(\d+)\s+GPUs\b", hardware) or (int(times[1]) if times else None)
    if total is not None and nodes and per_node is None and total % nodes == 0:
        per_node = total // nodes
    return total, per_node, nodes


def exact_count(count: Any) -> int | None:
    """A number of GPUs that is stated as one; none of ">=16", "16 / 2816" or "32 -> 128"."""
    if isinstance(count, int):
        return count
    found = re.fullmatch(r"(\d+)(?:\s*\(.*\)|\s+GPUs?)?", str(count).strip())
    return int(found[1]) if found else None


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.IGNORECASE)
    return _value(found[1]) if found else None


def _value(text: str) -> int:
    return NUMBERS[text.lower()] if text.lower() in NUMBERS else int(text)


def fabric_of(hardware: str) -> str | None:
    """The network between nodes, where the facts name it."""
    for pattern, name in FABRICS:
        if found := re.search(pattern, hardware, re.IGNORECASE):
            return found.expand(name)
    return None


# Framework


def frameworks_of(text: str) -> tuple[str, ...]:
    """Frameworks of the product that the words of a case name, most telling first."""
    from meshwright.frameworks.framework import framework

    words = re.split(r"[()+,/]+", text)
    found: list[str] = []
    for word in (w.strip() for w in words):
        try:
            name = framework(word).name if word else ""
        except MeshwrightError:
            continue
        if name and name not in found:
            found.append(name)
    return tuple(found)


RELEASES: Mapping[str, tuple[tuple[str, str], ...]] = {  # first month of each release
    "megatron-lm": (
        ("2022-07", "0.1"),
        ("2023-07", "0.3"),
        ("2023-11", "0.4"),
        ("2024-01", "0.5"),
        ("2024-04", "0.6"),
        ("2024-06", "0.7"),
        ("2024-08", "0.8"),
        ("2024-10", "0.9"),
        ("2025-02", "0.10"),
        ("2025-03", "0.11"),
        ("2025-05", "0.12"),
        ("2025-08", "0.13"),
        ("2025-10", "0.14"),
        ("2025-12", "0.15"),
        ("2026-02", "0.16"),
    ),
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DATE = re.compile(
    rf"(before )?(?:the )?\b(early|mid|late|{'|'.join(m + '[a-z]*' for m in MONTHS)})\.? (20\d\d)",
    re.IGNORECASE,
)


PACKAGES = {  # by what people call them; the package whose version is meant
    "core": "megatron-core",
    "mcore": "megatron-core",
    "megatron core": "megatron-core",
    "megatron-core": "megatron-core",
    "megatron-lm": "megatron-lm",
    "transformer engine": "transformer-engine",
    "transformerengine": "transformer-engine",
    "te": "transformer-engine",
    "pytorch": "torch",
    "torch": "torch",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "trl": "trl",
    "deepspeed": "deepspeed",
    "nccl": "nccl",
}
NAMED = re.compile(
    rf"\b({'|'.join(sorted(PACKAGES, key=len, reverse=True))})[ _-]*(?:version )?v?(\d+(?:\.\d+)+)",
    re.IGNORECASE,
)


def version_of(text: str, frameworks: tuple[str, ...]) -> str:
    """Versions that the facts state, as "megatron-core 0.15"; a bare number is the framework's."""
    named = {PACKAGES[found[1].lower()]: found[2] for found in NAMED.finditer(text)}
    rest = NAMED.sub("", text)
    if found := re.search(r"\bv?(\d+\.\d+(?:\.\d+)*)", rest):
        named[frameworks[0] if frameworks else ""] = found[1]
    elif not named and (of_month := released(text, frameworks)):
        named["megatron-core"] = of_month
    return ", ".join(f"{name} {version}".strip() for name, version in named.items())


def released(text: str, frameworks: tuple[str, ...]) -> str:
    """The release of a month that the facts name ("before June 2024"), "" if they name none."""
    found = DATE.search(text)
    if found is None:
        return ""
    word = found[2].lower()
    month = {"early": 2, "mid": 6, "late": 11}.get(word) or MONTHS.index(word[:3]) + 1
    stamp = f"{found[3]}-{month:02d}"
    releases = next((RELEASES[name] for name in frameworks if name in RELEASES), ())
    earlier = [v for first, v in releases if _precedes(first, stamp, found[1])]
    return (earlier or [v for _, v in releases] or [""])[-1 if earlier else 0]


def _precedes(first: str, stamp: str, before: str | None) -> bool:
    return first < stamp if before else first <= stamp
