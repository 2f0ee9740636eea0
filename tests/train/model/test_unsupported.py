"""Configurations that cannot be trained are told, with what to write instead."""

from __future__ import annotations

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.model.catalogue import preset_config, presets
from meshwright.train.model.unsupported import unsupported


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"attention_dropout": 0.1}, "attention_dropout"),
        ({"resid_pdrop": 0.1}, "resid_pdrop"),
        ({"router_jitter_noise": 0.01}, "router_jitter_noise"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"pad_token_id": 96}, "pad_token_id"),
        ({"pad_token_id": -97}, "pad_token_id"),
    ],
)
def test_what_ranks_would_compute_wrongly_is_refused(changes, key):
    (found,) = unsupported({"vocab_size": 96, **changes})
    assert found.key == f"model.{key}"
    assert found.hint


@pytest.mark.parametrize("keys", [{}, {"attention_dropout": 0.0, "resid_pdrop": None}])
def test_what_draws_nothing_is_not(keys):
    assert unsupported({"vocab_size": 96, "pad_token_id": 95, **keys}) == []


@pytest.mark.parametrize("name", presets())
def test_no_preset_is_refused(name):
    keys = preset_config(name)
    assert unsupported(keys.get("text_config", keys)) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "nonesuch"}, "no configuration of model_type 'nonesuch'"),
        ({"hidden_act": "__import__('os')"}, "no model of this llama: KeyError"),
        ({"rope_scaling": {"rope_type": "evil", "factor": 2.0}}, "no model of this llama"),
        ({"resid_pdrop": 0.5}, "draws other numbers on every rank"),
    ],
)
def test_what_transformers_refuses_is_no_traceback(changes, reason):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from meshwright.train.model.configuration import configuration_from_keys, model_of

    keys = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 96}
    with torch.device("meta"), pytest.raises(InvalidInput, match=reason) as error:
        model_of(configuration_from_keys({**keys, "num_hidden_layers": 1, **changes}))
    assert all(finding.hint for finding in error.value.findings)
