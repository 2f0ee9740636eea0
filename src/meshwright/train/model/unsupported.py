"""What a model's configuration may ask for that the engine would leave out or compute wrongly.

Dropout and jitter draw other numbers on every rank, and others again when a layer is recomputed:
gradients would be those of no model. Nothing of torch or transformers is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DRAWN = (  # keys of transformers' causal language models, 0 or None where nothing is drawn
    "attention_dropout",
    "attn_pdrop",
    "dropout",
    "embd_pdrop",
    "embedding_dropout",
    "expert_dropout",
    "hidden_dropout",
    "hidden_dropout_prob",
    "input_jitter_noise",
    "layerdrop",
    "resid_pdrop",
    "router_jitter_noise",
)
_BOTH_WAYS = ("use_bidirectional_attention", "is_encoder_decoder", "add_cross_attention")


def unsupported(keys: Mapping[str, Any]) -> list[Finding]:
    """A finding for every key of a text model's config.json that training must refuse."""
    return [*_drawn(keys), *_both_ways(keys), *_padding(keys)]


def _drawn(keys: Mapping[str, Any]) -> Iterator[Finding]:
    for name in _DRAWN:
        if keys.get(name):
            yield _finding(
                name,
                keys[name],
                f"{name} = {keys[name]} draws other numbers on every rank, which is not supported",
                hint=f'"{name}": 0 in the model\'s config.json',
            )


def _both_ways(keys: Mapping[str, Any]) -> Iterator[Finding]:
    for name in _BOTH_WAYS:
        if keys.get(name) is True:
            yield _finding(
                name,
                True,
                f"{name}: only causal language models are trained",
                hint="name another model",
            )


def _padding(keys: Mapping[str, Any]) -> Iterator[Finding]:
    token, size = keys.get("pad_token_id"), keys.get("vocab_size")
    if type(token) is int and type(size) is int and not -size <= token < size:
        yield _finding(
            "pad_token_id",
            token,
            f"the padding token {token:,} is none of the vocabulary's {size:,}",
            hint='"pad_token_id": null in the model\'s config.json, or a larger vocab_size',
        )


def _finding(name: str, value: Any, message: str, *, hint: str) -> Finding:
    return Finding(message=message, key=f"model.{name}", value=value, hint=hint)
