from __future__ import annotations

import pytest

from meshwright.evidence.habits import stack_of


@pytest.mark.parametrize(
    ("framework", "version", "year", "stack"),
    [
        ("nanotron", "Dec 2024 - Feb 2025", "2025", "nanotron"),
        ("megatron-deepspeed", "2022-2023", "2023", "megatron-deepspeed-2023"),
        ("Megatron-DeepSpeed", "", "2021", "megatron-deepspeed-2021"),
        ("Megatron-DeepSpeed", "", "2022", "megatron-deepspeed-2022"),
        ("Megatron-LM", "", "2021", "megatron-lm-2021"),
        ("Megatron-LM", "", "2022", "megatron-lm-2022"),
        ("NeMo/Megatron-Core", "NeMo 24.09/24.11", "2025", "nemo-2024"),
        ("NeMo/Megatron-Core", "NeMo container 25.07", "2025", "nemo-2025"),
        ("Megatron-Bridge/Megatron-Core", "NeMo container 26.04", "2026", "megatron-bridge-2025"),
        ("Megatron-Bridge/Megatron-Core", "NeMo container 26.06", "2026", "megatron-bridge-2026"),
        ("NeMo/Megatron (MLPerf submission by Dell)", "", "2025", "mlperf-2025"),
        ("NeMo/Megatron on ROCm (MLPerf submission by AMD)", "", "2025", "mlperf-rocm"),
        ("MaxText", "", "2024", "maxtext-tpu"),
        ("MaxText (JAX GPU)", "", "2024", "jax-gpu"),
        ("HAI-LLM", "", "2024", "hai-llm"),
        ("PyTorch FSDP2", "", "2025", "fsdp"),
        ("an unheard-of framework", "", "2025", "default"),
        ("", "", "", "default"),
    ],
)
def test_stacks_by_framework_and_era(make_row, framework, version, year, stack) -> None:
    row = make_row(framework=framework, framework_version=version, year=year)
    assert stack_of(row) == stack


def test_a_stack_depends_on_framework_version_and_year_alone(reference) -> None:
    seen: dict[tuple[str, ...], str] = {}
    for run in reference:
        key = tuple(run.row.text(c) for c in ("framework", "framework_version", "year"))
        assert seen.setdefault(key, stack_of(run.row)) == stack_of(run.row)
