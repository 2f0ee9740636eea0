"""Units made as tasks of a Ray cluster, whose machines share the folder of finished units.

Ray does no more than call: what is finished is found in the folder, as with every engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from meshwright.base.errors import MeshwrightError
from meshwright.data.needs import need
from meshwright.data.work.engines.answers import Answer, answer, raise_answer
from meshwright.data.work.engines.threads import ONE_THREAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.data.stages.layout import Job
    from meshwright.data.stages.plan import Stage
    from meshwright.data.work.engines import Make, OnDone

_AHEAD = 2  # tasks handed out for each CPU


class Ray:
    """The cluster that RAY_ADDRESS names, or one that is started here."""

    def __init__(self, job: Job, workers: int | None) -> None:
        self.job = job
        self.workers = workers
        self._ray: Any = None
        self._started = False
        self._job: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        self._ray = need("ray", "the engine ray", extra="ray")
        if not self._ray.is_initialized():
            self._start()
        environment = {"env_vars": dict(ONE_THREAD)}
        self._task = self._ray.remote(num_cpus=1, max_retries=3, runtime_env=environment)(_make)
        self._job = self._ray.put(self.job)
        return self

    def _start(self) -> None:
        """Joins the cluster, or starts one of `workers` CPUs on this machine."""
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        try:
            self._ray.init(address="auto", log_to_driver=False)
        except ConnectionError:
            self._ray.init(num_cpus=self.workers, **quiet)
        self._started = True

    def run(self, stage: Stage, numbers: Sequence[int], on_done: OnDone) -> None:
        """Makes every unit; a task whose machine is lost is tried again elsewhere."""
        waiting = list(reversed(numbers))
        most = _AHEAD * int(self._ray.cluster_resources().get("CPU", 1))
        running: dict[Any, int] = {}
        while waiting or running:
            while waiting and len(running) < most:
                number = waiting.pop()
                running[self._task.remote(stage.make, self._job, number)] = number
            for task in self._ray.wait(list(running), num_returns=1)[0]:
                number = running.pop(task)
                found = self._answer(task, stage, number)
                raise_answer(found)
                on_done(number, found.cpu_s)

    def _answer(self, task: Any, stage: Stage, number: int) -> Answer:
        try:
            found: Answer = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            raise MeshwrightError(
                f"Ray lost the task for unit {number} of {stage.name}: {type(error).__name__}",
                hint="run it again: finished units are kept; `ray status` shows the cluster",
            ) from error
        return found

    def __exit__(self, *_raised: object) -> None:
        if self._started:
            self._ray.shutdown()


def _make(make: Make, job: Job, number: int) -> Answer:
    """One unit, in a worker of Ray's."""
    return answer(make, job, number)
