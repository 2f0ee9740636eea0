"""Training on CPU: meshwright's loop beside a plain one, HF Trainer, accelerate, transformers.

    python benchmarks/train.py [--quick] [--json] [--rounds N] [--threads N] [--processes N]
        [--only NAME,NAME]

A llama of 10 M parameters in fp32, rows of 256 tokens, AdamW, clipping at 1.0, the same first
values and the same batches for all. Each contender (peers/train_*.py) is a process, or one a rank,
that is started once and then makes a few steps at a time, one contender after the other, in the
opposite order every second round: what else the machine does hits all alike. Told are medians over
rounds of a contender's seconds over the reference's in the same round, wall and CPU. The reference
is a plain PyTorch loop, on two ranks with FSDP2 by hand; `bare` is forward, backward and optimizer
of the same model alone, so that the others less it are overhead. Losses must be those of the
reference. meshwright is its real loop: feeding, agreement, beats, metrics, guard, all of it.

`--quick` is three rounds of two rows without accelerate and `bare` on two processes: a look within
a minute, noisier than the figures that count.

Start-up is from the command to the end of the first step in cold processes: `meshwright train`
(three processes at least) against the scripts. Exit status 1 when a figure misses its target.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from meshwright.api.training import Nodes, begin
from meshwright.train.feeding.synthetic import Synthetic
from meshwright.train.settings import write_spec
from meshwright.train.telling.metrics import METRICS, read_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

PEERS = Path(__file__).parent / "peers"
MOST_OVER_PLAIN = 1.02  # seconds a step of ours over the plain loop's
MOST_OVER_OTHERS = 1.0
MOST_LOSS_APART = 1e-3  # relative, after all steps
SEQ_LEN, SEED = 256, 3
STEPS_KEPT = 512  # batches on disk; later ones are those again
MAY_BE_ABSENT = ("accelerate",)  # 1.15 knows FSDP2 on a CPU not at all, and says so
OURS, PLAIN, BARE = "meshwright", "plain PyTorch", "bare model"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "use_cache": False,
    "dtype": "float32",
}
RECIPE = {
    "learning_rate": 1e-3,
    "weight_decay": 0.1,
    "betas": [0.9, 0.95],
    "epsilon": 1e-8,
    "clip_norm": 1.0,
}
ONE_PROCESS = {
    OURS: ["train_meshwright.py"],
    PLAIN: ["train_plain.py"],
    "HF Trainer": ["train_trainer.py"],
    BARE: ["train_plain.py", "bare"],
}
TWO_PROCESSES = {
    OURS: ["train_meshwright.py"],
    PLAIN: ["train_plain.py"],
    "accelerate": ["train_accelerate.py"],
    "transformers": ["train_transformers.py"],
    BARE: ["train_plain.py", "bare"],
}
LEFT_OUT_QUICKLY = {"two processes": ("accelerate", BARE)}  # where a quick run has no time for all
PEERS_BY_PROCESSES = {"one process": (1, ONE_PROCESS), "two processes": (2, TWO_PROCESSES)}


@dataclass
class Contender:
    """One contender's processes and what they told."""

    name: str
    command: list[str]
    log: Path
    environment: dict[str, str]
    process: subprocess.Popen[str] | None = None
    absent: str = ""
    start_s: float = 0.0
    start_cpu_s: float = 0.0
    turns: list[dict[str, Any]] = field(default_factory=list)

    def start(self) -> None:
        """Starts it and has it make one step."""
        began_s = time.perf_counter()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.environment,
            )
        told = self._turn(1)
        if told is not None:
            self.start_s, self.start_cpu_s = time.perf_counter() - began_s, told["cpu_s"]
            self.turns = [told]

    def turn(self, steps: int) -> None:
        """So many steps."""
        told = self._turn(steps)
        if told is not None:
            self.turns.append(told)

    def _turn(self, steps: int) -> dict[str, Any] | None:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(steps, file=self.process.stdin, flush=True)
            for line in self.process.stdout:
                if line.startswith("{"):
                    told: dict[str, Any] = json.loads(line)
                    return told
        except BrokenPipeError:
            pass
        lines = [line for line in self.log.read_text().splitlines() if line.strip()]
        self.absent = lines[-1] if lines else f"exit {self.process.wait()}"
        return None

    def end(self) -> None:
        """Lets it go."""
        if self.process is None or self.process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def losses(self) -> list[float]:
        """Of every step so far."""
        return [loss for turn in self.turns for loss in turn["losses"]]


def write_model(folder: Path) -> int:
    """config.json and random weights; how many there are."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    rng = np.random.default_rng(SEED)
    weights = {
        name: (rng.standard_normal(shape) * 0.02 if len(shape) > 1 else np.ones(shape)).astype("f4")
        for name, shape in shapes()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return sum(weight.size for weight in weights.values())


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Of every parameter of a llama."""
    c: Any = CONFIG
    hidden, wide = c["hidden_size"], c["intermediate_size"]
    heads = c["num_attention_heads"] * c["head_dim"]
    kv = c["num_key_value_heads"] * c["head_dim"]
    yield "model.embed_tokens.weight", (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "self_attn.q_proj.weight", (heads, hidden)
        yield at + "self_attn.k_proj.weight", (kv, hidden)
        yield at + "self_attn.v_proj.weight", (kv, hidden)
        yield at + "self_attn.o_proj.weight", (hidden, heads)
        yield at + "mlp.gate_proj.weight", (wide, hidden)
        yield at + "mlp.up_proj.weight", (wide, hidden)
        yield at + "mlp.down_proj.weight", (hidden, wide)
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (c["vocab_size"], hidden)


def write_case(folder: Path, *, ranks: int, rows: int, threads: int) -> Path:
    """Everything that contenders read."""
    folder.mkdir()
    made = Synthetic(seq_len=SEQ_LEN, vocab_size=int(CONFIG["vocab_size"]), seed=SEED)
    read = made.read(np.arange(STEPS_KEPT * rows))
    tokens = np.concatenate([read.tokens, read.labels[:, -1:]], axis=1).astype(np.uint16)
    np.save(folder / "tokens.npy", tokens.reshape(STEPS_KEPT, rows, SEQ_LEN + 1))
    plan = folder / "plan.toml"
    plan.write_text(plan_of(ranks=ranks, rows=rows))
    spec = spec_of(plan, folder / "run", threads=threads)
    case = RECIPE | {
        "model": str(folder.parent / "model"),
        "tokens": str(folder / "tokens.npy"),
        "spec": str(spec),
        "ranks": ranks,
        "threads": threads,
    }
    path = folder / "case.json"
    path.write_text(json.dumps(case))
    return path


def plan_of(*, ranks: int, rows: int) -> str:
    """The text of a plan: FSDP2 with all parameters sharded where there are several ranks."""
    return f"""[model]
path = "../model/config.json"
[cluster]
gpu = "H100:{ranks}"
nodes = 1
[workload]
seq_len = {SEQ_LEN}
global_batch = {rows}
[plan]
precision = "fp32"
dp = {ranks}
micro_batch_size = {rows // ranks}
zero_stage = {3 if ranks > 1 else 0}
"""


def spec_of(plan: Path, out: Path, *, threads: int) -> Path:
    """What the command would write for the ranks to read."""
    out.mkdir()
    start = begin(
        plan, out=out, data="synthetic", steps=1 << 20, resume=False, device="cpu", nodes=Nodes(),
        seed=SEED, threads=threads, weights=str(out.parent.parent / "model"), **options(),
    )  # fmt: skip
    path = out / "run.json"
    write_spec(start.spec, path)
    return path


def options() -> dict[str, Any]:
    """The recipe in meshwright's words."""
    return {
        "learning_rate": RECIPE["learning_rate"],
        "lr_schedule": "constant",
        "weight_decay": RECIPE["weight_decay"],
        "clip_norm": RECIPE["clip_norm"],
        "shuffle": False,
        "checkpoint_every": -1,
        "log_every": 10,
    }


@dataclass
class Setting:
    """How much is measured."""

    rows: int
    rounds: int
    steps: int  # of a turn
    starts: int
    threads: int
    processes: int
    left_out: dict[str, tuple[str, ...]] = field(default_factory=dict)


def compete(
    folder: Path, peers: dict[str, list[str]], *, ranks: int, asked: Setting, only: set[str]
) -> dict[str, Any]:
    """All contenders on so many processes; what they took, absolutely and over the reference."""
    threads = asked.threads or max(1, len(os.sched_getaffinity(0)) // ranks)
    case = write_case(folder, ranks=ranks, rows=asked.rows, threads=threads)
    environment = environment_of(threads)
    contenders = []
    for name, (script, *more) in peers.items():
        if only and name not in only:
            continue
        command = [sys.executable, str(PEERS / script), str(case), *more]
        log = folder / f"{len(contenders)}.log"
        contenders.append(Contender(name, command, log, environment))
    starts: dict[str, list[tuple[float, float]]] = {}
    for contender in contenders:
        for _ in range(asked.starts if ranks == 1 else 1):
            contender.end()
            contender.start()
            starts.setdefault(contender.name, []).append((contender.start_s, contender.start_cpu_s))
    try:
        take_turns(contenders, asked)
    finally:
        for contender in contenders:
            contender.end()
    figures = {c.name: figures_of(c, contenders, asked) for c in contenders}
    for name, figure in figures.items():
        if "absent" not in figure and ranks == 1 and name != BARE:
            figure["start_s"] = statistics.median(wall_s for wall_s, _ in starts[name])
            figure["start_cpu_s"] = statistics.median(cpu_s for _, cpu_s in starts[name])
    return figures


def environment_of(threads: int) -> dict[str, str]:
    """Of every contender: our thread count, no network, bytecode kept as usual."""
    own = {
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | own


def take_turns(contenders: list[Contender], asked: Setting) -> None:
    """Round after round, forth and back; the first one warms up."""
    for number in range(asked.rounds + 1):
        here = [contender for contender in contenders if not contender.absent]
        for contender in here if number % 2 else here[::-1]:
            contender.turn(asked.steps)


def figures_of(one: Contender, every: list[Contender], asked: Setting) -> dict[str, Any]:
    """Medians a step, and ratios to the others by the round."""
    if one.absent:
        return {"absent": one.absent}
    turns = one.turns[2:]  # without the first step and the first round
    told: dict[str, Any] = {
        "wall_s": statistics.median(turn["wall_s"] for turn in turns) / asked.steps,
        "cpu_s": statistics.median(turn["cpu_s"] for turn in turns) / asked.steps,
        "over": {},
    }
    told["tokens_per_s"] = asked.rows * SEQ_LEN / told["wall_s"]
    for other in every:
        if other is one or other.absent:
            continue
        theirs = other.turns[2:]
        told["over"][other.name] = {
            key: statistics.median(
                mine[key] / its[key] for mine, its in zip(turns, theirs, strict=True)
            )
            for key in ("wall_s", "cpu_s")
        }
        if other.name != BARE and one.name != BARE:
            told["over"][other.name]["loss_apart"] = max(
                abs(a - b) / abs(b) for a, b in zip(one.losses, other.losses, strict=True)
            )
    return told


def command_starts(folder: Path, asked: Setting) -> dict[str, float]:
    """`meshwright train`, cold, from the command to the end of its first step."""
    walls, cpus = [], []
    for number in range(asked.starts):
        out = folder / f"start-{number}"
        command = [sys.executable, "-m", "meshwright", "train", str(folder / "plan.toml")]
        command += ["--out", str(out), "--steps", "1", "--device", "cpu", "--seed", str(SEED)]
        command += ["--weights", str(folder.parent / "model"), "--no-save-last", "--no-shuffle"]
        command += ["--checkpoint-every", "-1", "--threads", str(asked.threads)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began_s = time.time()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment_of(1)
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise SystemExit(done.stderr)
        walls.append(read_metrics(out / METRICS)[0]["time_s"] - began_s)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"start_s": statistics.median(walls), "start_cpu_s": statistics.median(cpus)}


def measure(asked: Setting, only: set[str]) -> dict[str, Any]:
    """Everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parameters = write_model(folder / "model")
        found = {"parameters": parameters, "tokens_a_step": asked.rows * SEQ_LEN}
        for where, (ranks, peers) in PEERS_BY_PROCESSES.items():
            if asked.processes in (0, ranks):
                folder_of_case = folder / str(ranks)
                left_out = () if only else asked.left_out.get(where, ())
                some = {name: peer for name, peer in peers.items() if name not in left_out}
                found[where] = compete(folder_of_case, some, ranks=ranks, asked=asked, only=only)
        if asked.processes != 2:
            found["meshwright train"] = command_starts(folder / "1", asked)
    return found


def misses(found: dict[str, Any]) -> list[str]:
    """The targets that are missed, in words."""
    told = []
    for where in [name for name in PEERS_BY_PROCESSES if name in found]:
        over = found[where].get(OURS, {}).get("over", {})
        for name, ratio in over.items():
            if name == BARE:
                continue
            most = MOST_OVER_PLAIN if name == PLAIN else MOST_OVER_OTHERS
            if ratio["wall_s"] > most:
                told.append(f"{where}: {ratio['wall_s']:.3f} times the seconds of {name}")
            if ratio["loss_apart"] > MOST_LOSS_APART:
                told.append(f"{where}: losses {ratio['loss_apart']:.1e} apart from {name}")
        for name, figure in found[where].items():
            if "absent" in figure and name not in MAY_BE_ABSENT:
                told.append(f"{where}: {name} did not run: {figure['absent']}")
    return told


def show(found: dict[str, Any]) -> None:
    """The figures in lines."""
    print(f"llama, {found['parameters'] / 1e6:.1f} M parameters, fp32, {found['tokens_a_step']:,} "
          "tokens a step")  # fmt: skip
    for where in [name for name in PEERS_BY_PROCESSES if name in found]:
        print(
            f"\n{where:22}   ms/step  CPU ms/step  tokens/s   ours/its, wall   CPU   losses apart"
        )
        for name, figure in found[where].items():
            if "absent" in figure:
                print(f"  {name:20} absent: {figure['absent']}")
                continue
            line = f"  {name:20} {figure['wall_s'] * 1e3:9.1f} {figure['cpu_s'] * 1e3:12.1f}"
            line += f" {figure['tokens_per_s']:9,.0f}"
            over = found[where].get(OURS, {}).get("over", {}).get(name)
            if over:
                line += f" {over['wall_s']:16.3f} {over['cpu_s']:5.3f}"
                line += f" {over['loss_apart']:14.1e}" if "loss_apart" in over else ""
            print(line)
    if "meshwright train" not in found:
        return
    print("\nfrom the command to the end of the first step, cold    s   CPU s")
    starts = {name: f for name, f in found["one process"].items() if "start_s" in f}
    starts |= {"meshwright train": found["meshwright train"]}
    for name, figure in starts.items():
        if name != OURS:
            print(f"  {name:50} {figure['start_s']:5.1f} {figure['start_cpu_s']:6.1f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="three rounds of two rows, fewer peers"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, help="turns of each contender")
    parser.add_argument("--threads", type=int, default=0, help="of a process; else cores/processes")
    parser.add_argument("--processes", type=int, default=0, help="1 or 2; else both")
    parser.add_argument("--only", default="", help="contenders by name, with commas")
    asked = parser.parse_args()
    given = {"threads": asked.threads, "processes": asked.processes}
    setting = (
        Setting(rows=2, rounds=3, steps=2, starts=1, left_out=LEFT_OUT_QUICKLY, **given)
        if asked.quick
        else Setting(rows=4, rounds=15, steps=4, starts=3, **given)
    )
    setting.rounds = asked.rounds or setting.rounds
    found = measure(setting, {name for name in asked.only.split(",") if name})
    missed = misses(found)
    if asked.json:
        print(json.dumps({**found, "missed": missed}, indent=1))
    else:
        show(found)
        print("\n".join(f"missed: {one}" for one in missed) or "all targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
