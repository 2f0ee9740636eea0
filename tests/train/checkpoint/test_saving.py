import os
import signal
import threading
import time
from types import SimpleNamespace
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from checkpointing import names_in  # noqa: E402
from small import EVERY, adam, full_disk, net, numbers, read, step, write  # noqa: E402

from meshwright.base.errors import InvalidInput, MeshwrightError  # noqa: E402
from meshwright.train.checkpoint import Every, SaveFailed, Saver, latest, state_of  # noqa: E402
from meshwright.train.checkpoint import saving as saving_module  # noqa: E402
from meshwright.train.checkpoint.manifest import read_manifest  # noqa: E402
from meshwright.train.local import RankFailed, run_ranks  # noqa: E402


def test_what_is_saved_is_what_there_was_when_save_returned(tmp_path):
    gate = threading.Event()

    def run():
        module = net()
        optimizers = adam(module)
        step(module, optimizers)
        write_later = Saver._write

        def held(self, *args, **options):
            gate.wait(10)
            return write_later(self, *args, **options)

        with mock.patch.object(Saver, "_write", held):
            saver = Saver(tmp_path, every=EVERY)
            saver.save(state_of([module], optimizers), 1, {})
        then = numbers(module)
        step(module, optimizers)  # while the checkpoint is still to be written
        assert numbers(module) != then
        assert names_in(tmp_path) == []
        gate.set()
        saver.close()
        return then

    then = run_ranks(run, 1)[0]
    assert read(tmp_path / "step-1") == then


def test_a_save_that_is_due_while_another_runs_waits_and_is_counted(tmp_path):
    def run():
        module = net()
        saver = Saver(tmp_path, every=EVERY)
        real = saving_module.dcp.save

        def save(*args, **options):
            end_s = time.monotonic() + 30
            while not saver.waits and time.monotonic() < end_s:  # until the next one is due
                time.sleep(0.01)
            time.sleep(0.1)
            return real(*args, **options)

        with mock.patch.object(saving_module.dcp, "save", save):
            for number in (1, 2):
                saver.save(state_of([module]), number, {})
            saver.wait()
            saver.save(state_of([module]), 3, {})
            saver.close()
        return saver.waits, saver.waited_s, [s.step for s in saver.saved]

    waits, waited_s, steps = run_ranks(run, 1)[0]
    assert (waits, steps) == (1, [1, 2, 3])
    assert 0.05 < waited_s < 20


def test_the_newest_are_kept_and_every_so_many(tmp_path):
    def run():
        module = net()
        saver = Saver(tmp_path, keep=2, keep_every=4, every=EVERY)
        for number in range(1, 8):
            saver.save(state_of([module]), number, {})
        saver.close()
        return [(s.step, s.removed) for s in saver.saved]

    saved = run_ranks(run, 1)[0]
    assert names_in(tmp_path) == ["step-4", "step-6", "step-7"]
    assert saved == [(1, ()), (2, ()), (3, (1,)), (4, (2,)), (5, (3,)), (6, ()), (7, (5,))]


def test_leftovers_of_an_interrupted_save_go_and_a_later_branch_is_set_aside(tmp_path):
    write(tmp_path, steps=(1, 2, 5))
    (tmp_path / "step-5" / "manifest.json").write_text("torn")
    (tmp_path / "step-6.tmp").mkdir()
    (tmp_path / "step-2.gone").mkdir()
    (tmp_path / "metrics.jsonl").write_text("kept")
    write(tmp_path, steps=(3,), keep=2)
    assert names_in(tmp_path) == ["metrics.jsonl", "step-2", "step-3", "step-5.aside"]
    assert latest(tmp_path).folder == tmp_path / "step-3"


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_full_disk_is_told_and_leaves_what_was_good(tmp_path, ranks):
    first = write(tmp_path, ranks=ranks)

    def run():
        module = net(1)
        saver = Saver(tmp_path, every=EVERY)
        with full_disk(after_bytes=200):
            saver.save(state_of([module], adam(module)), 2, {})
            with pytest.raises(SaveFailed) as failure:
                saver.wait()
        told = failure.value
        full = (told.step, told.full, told.message, told.hint)
        dist.barrier()  # every rank has given up, so the first one has tidied
        seen = sorted(p.name for p in tmp_path.iterdir())
        dist.barrier()  # before the next save makes another folder
        saver.save(state_of([module]), 3, {})  # there is room again
        saver.close()
        return full, seen, [s.step for s in saver.saved]

    for full, seen, steps in run_ranks(run, ranks):
        assert full == (
            2,
            True,
            "the checkpoint of step 2 could not be written: no space is left on the device",
            "free some space, or keep fewer checkpoints",
        )
        assert seen == ["step-1"]
        assert steps == [3]
    assert read(tmp_path / "step-1", ranks=ranks) == first[0]


def test_a_failure_on_one_rank_stops_all_of_them_at_the_next_save(tmp_path):
    def run():
        module = net()
        saver = Saver(tmp_path, every=EVERY)
        failing = full_disk() if dist.get_rank() == 1 else mock.patch("builtins.id", id)
        with failing:
            saver.save(state_of([module]), 1, {})
            try:
                saver.save(state_of([module]), 2, {})
            except SaveFailed as failure:
                return failure.step, failure.full
        return None

    assert run_ranks(run, 2) == [(1, True)] * 2
    assert names_in(tmp_path) == []


def test_a_kill_while_files_are_written_leaves_the_checkpoint_before(tmp_path):
    first = write(tmp_path, ranks=2)

    def run():
        module = net(1)
        if dist.get_rank() == 1:

            def die(*_: object) -> None:
                os.kill(os.getpid(), signal.SIGKILL)

            mock.patch.object(saving_module.FolderWriter, "write_data", die).start()
        saver = Saver(tmp_path, every=EVERY)
        saver.save(state_of([module]), 2, {})
        saver.close()

    with pytest.raises(RankFailed):
        run_ranks(run, 2, timeout_s=30)
    assert latest(tmp_path).folder == tmp_path / "step-1"
    assert read(tmp_path / "step-1", ranks=2) == first[0]


def test_the_same_step_again_replaces_it(tmp_path):
    write(tmp_path, steps=(1, 2))
    again = write(tmp_path, steps=(2,))
    assert names_in(tmp_path) == ["step-1", "step-2"]
    assert read(tmp_path / "step-2") == again[0]


def test_facts_that_json_cannot_hold_are_refused_at_once(tmp_path):
    def run():
        saver = Saver(tmp_path, every=EVERY)
        for facts in ({"loss": float("nan")}, {"tensor": torch.ones(1)}):
            with pytest.raises(MeshwrightError, match="must be plain"):
                saver.save(state_of([net()]), 1, facts)
        saver.close()

    run_ranks(run, 1)
    assert names_in(tmp_path) == []


def test_the_interval_follows_from_what_a_save_costs(tmp_path):
    def run():
        module = net()
        saver = Saver(tmp_path, every=Every(mtbf_s=50.0))
        now = [0.0]
        stage = saver._stage

        def staged(state):  # a second on rank 0, four on rank 1
            now[0] += 1.0 + 3.0 * dist.get_rank()
            return stage(state)

        saver._stage = staged
        due = []
        with mock.patch.object(saving_module, "time", SimpleNamespace(monotonic=lambda: now[0])):
            for number in range(1, 80):
                now[0] += 1.0
                if saver.due(number):
                    due.append(number)
                    saver.save(state_of([module]), number, {})
            saver.close()
        return due

    # sqrt(2 * 4 s * 50 s) = 20 s, and a step takes one: the slowest rank counts, for all alike
    assert run_ranks(run, 2) == [[10, 30, 50, 70]] * 2


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(RankFailed, match="is no finished checkpoint"):
        read(tmp_path)
    with pytest.raises(InvalidInput, match="is no folder"):
        read_manifest(tmp_path / "step-99")
