"""The supervisor's state while agents come and go; `local` says what it is for."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from meshwright.train.launch import event
from meshwright.train.launch.causes import cause_of
from meshwright.train.launch.codes import FAILED, INTERRUPTED, PREEMPTED, described
from meshwright.train.launch.dumps import ask_for_dumps
from meshwright.train.launch.event import Event, Reader
from meshwright.train.launch.logs import Tail, last_lines, log_of
from meshwright.train.launch.processes import (
    alive,
    gone_within,
    kill,
    kill_adopted,
    kill_session,
    started_at,
    state,
)
from meshwright.train.launch.rank import DUMP
from meshwright.train.watch.heart import beats_in
from meshwright.train.watch.lag import Hang, Limits, Watch
from meshwright.train.watch.signals import ASKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.train.launch.asked import Asked
    from meshwright.train.launch.settings import AgentSettings

_POLL_S = 0.05
_LOOK_S = 1.0  # between looks at the beats
_DUMP_S = 0.5  # for ranks to write their stacks
_GONE_S = 5.0  # for killed processes to be gone
_FROZEN_S = 10.0  # that an agent may be stopped for
_LAST_LINES = 6  # of an agent that failed


class Supervisor:
    """One run on this node."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        lock: int,
        environment: dict[str, str],
        grace_s: float,
        limits: Limits,
        asked: Asked,
        tell: Callable[[Event], object],
    ) -> None:
        self._settings = settings
        self._lock = lock
        self._environment = environment
        self._grace_s = grace_s
        self._asked = asked
        self._told: Callable[[Event], object] | None = tell
        self._folder = Path(settings.log_folder)
        self._old_bytes = {p: p.stat().st_size for p in self._folder.glob("attempt-*/rank-0.log")}
        self._agent_log = self._folder / f"agent-{settings.node_rank}.log"
        self._watch = Watch(limits=limits)
        self._tail = Tail()
        self._ranks: dict[int, tuple[int, str]] = {}  # process and its start, by rank
        self._sessions: set[int] = set()  # that ranks of this agent may have begun
        self._attempt = 0
        self._left = settings.restarts
        self._code: int | None = None  # the agent's last word
        self._hung = False
        self._stop_by_s: float | None = None
        self._looked_s = self._thawed_s = time.monotonic()

    def run(self) -> int:
        """Agents one after another, until one ends as it should or no attempt is left."""
        (self._folder / "beats").mkdir(parents=True, exist_ok=True)
        while True:
            self._tell(Event(kind=event.STARTING, attempt=self._attempt))
            code = self._run_agent()
            if code is None and self._stop_by_s is not None:
                code = INTERRUPTED if self._asked.twice else PREEMPTED
            if code is None and self._left < 1:
                code = FAILED
            if code is not None:
                sign = self._asked.first
                self._tell(Event(kind=event.ENDED, attempt=self._attempt, code=code, sign=sign))
                return code
            self._attempt += 1
            self._left -= 1
            self._restarting()

    def _run_agent(self) -> int | None:
        """One agent to its end: its exit code, or None when it ended without saying one."""
        read, write = os.pipe()
        held, lifeline = os.pipe()  # nobody writes: it is closed by our death
        agent = self._start(write, held)
        os.close(write)
        os.close(held)
        try:
            return self._follow(agent, Reader(read))
        finally:
            self._clear(agent)
            os.close(read)
            os.close(lifeline)

    def _start(self, write: int, held: int) -> subprocess.Popen[bytes]:
        self._code, self._ranks, self._sessions = None, {}, set()
        settings = replace(
            self._settings,
            attempt=self._attempt,
            restarts=self._left,
            events=write,
            lifeline=held,
        )
        text = msgspec.json.encode(settings).decode()
        with self._agent_log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "meshwright.train.launch.agent", text],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(write, held, self._lock),
                env=self._environment,
                start_new_session=True,
            )

    def _follow(self, agent: subprocess.Popen[bytes], reader: Reader) -> int | None:
        """Until the agent has ended or must be ended."""
        while True:
            ended = agent.poll() is not None
            attempt = self._attempt
            self._hear(reader.read())
            self._echo()
            if self._code is not None:
                return self._code
            if ended:
                self._lost(f"ended with {described(agent.returncode)}", code=agent.returncode)
                return None
            if self._asked.stop and not self._stopping(restarted=self._attempt > attempt):
                return None
            if self._is_frozen(agent.pid):
                self._lost(f"has been stopped for {_FROZEN_S:.0f} s")
                return None
            self._look()
            self._asked.wait(_POLL_S)

    def _lost(self, how: str, *, code: int = 0) -> None:
        text = f"the agent {how}; all that it said is in {self._agent_log}"
        told = Event(
            kind=event.AGENT_LOST,
            attempt=self._attempt,
            text=text,
            lines=last_lines(self._agent_log, _LAST_LINES) if code > 0 else (),
            code=code,
        )
        self._tell(told)

    def _hear(self, events: list[Event]) -> None:
        """Takes what the agent says."""
        failed = [told for told in events if told.kind == event.FAILED]
        if failed and not self._hung:
            self._tell(cause_of(failed, self._folder))
        for told in events:
            if told.kind == event.RANKS:
                self._started(told)
            elif told.kind == event.ENDED:
                self._code = told.code

    def _started(self, told: Event) -> None:
        """Other processes are the ranks now."""
        self._left = told.left
        if told.attempt > self._attempt:
            self._attempt = told.attempt
            self._restarting()
        self._hung = False
        self._ranks = {rank: (pid, started_at(pid)) for rank, pid in told.pids.items()}
        self._sessions |= set(told.pids.values())
        self._watch.forget()
        log = log_of(self._folder, self._attempt, 0)
        self._tail.follow(log, skip_bytes=self._old_bytes.get(log, 0))
        self._tell(told)

    def _tell(self, happened: Event) -> None:
        """Hands an event on, for as long as somebody listens: a broken pipe ends no run."""
        if self._told is None:
            return
        try:
            self._told(happened)
        except OSError:
            self._told = None

    def _restarting(self) -> None:
        text = f"attempt {self._attempt + 1}; {self._left} more may follow"
        self._tell(Event(kind=event.RESTARTING, attempt=self._attempt, text=text))

    def _echo(self) -> None:
        """Passes on what rank 0 wrote, on the node that has it."""
        text = self._tail.read() if 0 in self._ranks else ""
        if text:
            self._tell(Event(kind=event.LINE, attempt=self._attempt, rank=0, text=text))

    def _stopping(self, *, restarted: bool) -> bool:
        """Asks the ranks to stop; False when there is nothing to wait for any longer."""
        now_s = time.monotonic()
        first = self._stop_by_s is None
        if self._stop_by_s is None:
            self._stop_by_s = now_s + self._grace_s
        if not self._ranks or restarted or self._asked.twice or now_s > self._stop_by_s:
            return False
        if first:
            text = f"the ranks have {self._grace_s:.0f} s to finish their step and save"
            self._tell(Event(kind=event.STOPPING, attempt=self._attempt, text=text))
            kill(self._ranks.values(), sign=ASKS)
        return True

    def _is_frozen(self, pid: int) -> bool:
        """Whether the agent has been stopped for too long."""
        now_s = time.monotonic()
        if state(pid) != "T":
            self._thawed_s = now_s
        return now_s - self._thawed_s > _FROZEN_S

    def _look(self) -> None:
        """Looks at the beats of our ranks now and then; ends all when they stand still."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S or self._hung:
            return
        self._looked_s = now_s
        own = {r: pid for r, (pid, since) in self._ranks.items() if alive(pid, since=since)}
        world = self._settings.nodes * self._settings.ranks
        beats = {r: b for r, b in beats_in(self._folder / "beats").items() if r < world}
        stopped = [rank for rank, pid in own.items() if state(pid) == "T"]
        hang = self._watch.look(beats, own=own, stopped=stopped, now_s=now_s)
        if hang is not None:
            self._break(hang)

    def _break(self, hang: Hang) -> None:
        """Has the ranks write their stacks, tells who hangs, and ends all of ours."""
        self._hung = True
        kill(self._ranks.values(), sign=DUMP)
        ask_for_dumps(self._folder, self._ranks)
        time.sleep(_DUMP_S)
        names = ", ".join(map(str, hang.ranks))
        text = f"rank {names} holds the others up" if len(hang.ranks) == 1 else ""
        text = text or f"ranks {names} hold the others up"
        self._tell(Event(kind=event.HANG, attempt=self._attempt, text=text, lines=hang.lines))
        kill(self._ranks.values())

    def _clear(self, agent: subprocess.Popen[bytes]) -> None:
        """Ends whatever of this agent still runs, and waits until it is gone."""
        kill_session(agent.pid)
        kill(self._ranks.values())
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel holds on to it
            agent.wait(_GONE_S)
        kill_adopted({agent.pid, *self._sessions}, within_s=_GONE_S)
        gone_within(self._ranks.values(), _GONE_S)
        self._echo()
