"""transformers' Trainer, told every step, with nothing of its own reported anywhere.

python train_trainer.py CASE.json
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
import train_turns as turns
from torch.utils.data import Dataset
from transformers import (
    AutoModelForCausalLM,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Rows(Dataset):  # type: ignore[type-arg]
    """Rows one by one, in the order of the others."""

    def __init__(self, tokens: Any) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return int(self._tokens.shape[0] * self._tokens.shape[1])

    def __getitem__(self, number: int) -> dict[str, Any]:
        step, row = divmod(number, self._tokens.shape[1])
        tokens = torch.from_numpy(self._tokens[step, row].astype("int64"))
        return {"input_ids": tokens[:-1], "labels": tokens[1:], "shift_labels": tokens[1:]}


class Paced(TrainerCallback):
    """Takes turns, and keeps losses."""

    def __init__(self, turn: turns.Turns) -> None:
        self._turn = turn

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Waits for our turn."""
        self._turn.tick()

    def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
        """Keeps the loss."""
        if "loss" in logs:
            self._turn.losses.append(float(logs["loss"]))


def main() -> None:
    case = turns.Case(sys.argv[1])
    turn = turns.begin(case.ranks)
    turns.settle(case)
    model = AutoModelForCausalLM.from_pretrained(case.model, attn_implementation="sdpa")
    model.config.use_cache = False
    tokens = turns.rows(case)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=tokens.shape[1],
            num_train_epochs=1000,
            learning_rate=case.learning_rate,
            lr_scheduler_type="constant",
            weight_decay=case.weight_decay,
            adam_beta1=case.betas[0],
            adam_beta2=case.betas[1],
            adam_epsilon=case.epsilon,
            max_grad_norm=case.clip_norm,
            optim="adamw_torch_fused",
            train_sampling_strategy="sequential",
            logging_steps=1,
            logging_first_step=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(
            model=model, args=arguments, train_dataset=Rows(tokens), callbacks=[Paced(turn)]
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


if __name__ == "__main__":
    main()
