"""TensorBoard and Weights & Biases, imported when a run asks for them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.train.settings import Run
    from meshwright.train.telling.record import Record

TENSORBOARD = "tensorboard"  # folder of its files in that of the run
_SCALARS = {  # in metrics.jsonl, and on a board
    "loss": "train/loss",
    "evaluation_loss": "evaluation/loss",
    "learning_rate": "train/learning_rate",
    "grad_norm": "train/grad_norm",
    "step_s": "speed/step_s",
    "tokens_per_s_per_device": "speed/tokens_per_s_per_device",
    "mfu": "speed/mfu",
    "memory_bytes": "speed/memory_bytes",
    "data_wait_s": "speed/data_wait_s",
}


class Board(Protocol):
    """Somewhere that scalars of steps are drawn."""

    def add(self, record: Record) -> None:
        """One step."""
        ...

    def close(self) -> None:
        """Writes what is left."""
        ...


def open_boards(run: Run, facts: Mapping[str, Any], *, step: int) -> list[Board]:
    """The boards that a run asks for, which goes on after `step` steps."""
    check_boards(run)
    boards: list[Board] = []
    if run.telling.tensorboard:
        boards.append(_TensorBoard(Path(run.out) / TENSORBOARD, step=step))
    if run.telling.wandb_project is not None:
        boards.append(_Wandb(run, facts, step=step))
    return boards


def check_boards(run: Run) -> None:
    """MeshwrightError where a board is asked for whose library is not installed."""
    wanted = {
        "tensorboard": run.telling.tensorboard,
        "wandb": run.telling.wandb_project is not None,
    }
    for library, is_wanted in wanted.items():
        if is_wanted and find_spec(library) is None:
            raise MeshwrightError(
                f"{library} is not installed", hint=f"pip install {library}, or leave it out"
            )


class _TensorBoard:
    def __init__(self, folder: Path, *, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=step + 1, flush_secs=10)

    def add(self, record: Record) -> None:
        for name, value in _scalars(record):
            self._writer.add_scalar(name, value, record.step, walltime=record.time_s)

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """One run there for one folder here: its name is the folder's, so that it is resumed too."""

    def __init__(self, run: Run, facts: Mapping[str, Any], *, step: int) -> None:
        import wandb

        self._run = wandb.init(
            project=run.telling.wandb_project,
            name=Path(run.out).name,
            dir=run.out,
            id=_identity(run, fresh=step == 0),
            resume="allow",
            config=dict(facts),
        )

    def add(self, record: Record) -> None:
        self._run.log(dict(_scalars(record)), step=record.step)

    def close(self) -> None:
        self._run.finish()


def _identity(run: Run, *, fresh: bool) -> str:
    """The run's identity there, kept in its folder so that a resumed run goes on under it."""
    path = Path(run.out) / "wandb-id"
    if fresh or not path.exists():
        from uuid import uuid4

        path.write_text(uuid4().hex)
    return path.read_text().strip()


def _scalars(record: Record) -> Iterator[tuple[str, float]]:
    """What is drawn of a step."""
    for field, name in _SCALARS.items():
        value = getattr(record, field)
        if value is not None:
            yield name, value
