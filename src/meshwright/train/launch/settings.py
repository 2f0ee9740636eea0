"""What the supervisor hands to the agent, and the agent to its ranks."""

from __future__ import annotations

from meshwright.base.noun import dataclass

FORK, EXECUTE = "fork", "execute"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """One run of torchrun's agent.

    `worker` is a module with `main(arguments: list[str]) -> int | None`, and its arguments; where
    it has `warm(arguments)` too, that is called once before ranks are forked. `start` says how they
    start: "fork" after everything is imported, or "execute" as new interpreters (a process that may
    touch a GPU is not forked). `attempt` numbers the first attempt, `restarts` more may follow.
    Descriptors are those of pipes: events go out, the lifeline closes when the supervisor ends.
    """

    worker: tuple[str, ...]
    ranks: int
    nodes: int
    node_rank: int
    endpoint: str
    run: str
    start: str
    attempt: int
    restarts: int
    log_folder: str
    supervisor: int
    events: int
    lifeline: int
    rendezvous_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """What one rank needs before its work; `parent` is the agent's process."""

    worker: tuple[str, ...]
    attempt: int
    log_folder: str
    parent: int
