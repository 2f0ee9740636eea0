"""NCCL's and RCCL's debug logs (NCCL_DEBUG=INFO or WARN), of one process or of many in one file.

Formats are those of NCCL 2.5 to 2.29 and RCCL 2.9 to 2.28 as issues of NVIDIA/nccl, ROCm/rccl and
public logs show them. Texts that are not known are passed over.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from meshwright.diagnose.logs.gathered import NO_GDR, Gathered, name_of_algorithm
from meshwright.diagnose.logs.lines import Said, lines_of, said_in
from meshwright.diagnose.text import refusal
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from meshwright.diagnose.logs.noun import NcclLog

HINT = "run with NCCL_DEBUG=INFO and NCCL_DEBUG_FILE=nccl.%h.%p.log, and give those files"
VERSION = re.compile(r"\b([NR]CCL) version ?:? ?v?(\d+(?:\.\d+){1,3})", re.IGNORECASE)
COMM = re.compile(
    r"\bcomm (0x[0-9a-f]+) (?:\w+ 0x[0-9a-f]+ )?rank (\d{1,9}) n[rR]anks (\d{1,9})(.*)"
)
COMM_PAIR = re.compile(r"\b(cudaDev|busId|commId|nNodes|localRanks) (\w+)")
LINK = re.compile(
    r"^Channel (?P<channel>\d{1,4})(?:/\w+)? : \d+(?:\[\w+\])? -> \d+(?:\[\w+\])? +"
    r"(?:\[(?:send|receive)\] +)?via (?P<via>.+?)(?: comm (?P<comm>0x[0-9a-f]+) nRanks \d+)?$"
)
CHANNELS = re.compile(r"^(\d{1,6}) coll channels")
RINGS = re.compile(r"Connected all rings.*\bGDR (\d)")
TIMINGS = re.compile(
    r"^Init timings.*?\brank (\d{1,9}) nranks (\d{1,9}) total (\d{1,9}(?:\.\d{1,9})?)"
)
NETWORK = re.compile(r"^Using network (.+?)\s*$")
SETTING = re.compile(
    r"^(?:NET/OFI Adding )?(NCCL_\w+|RCCL_\w+)(?: set (?:by environment )?to |=)(.*)$"
)
USING = re.compile(r"^(Bootstrap|NET/[\w ]+?) ?: Using (.+)$")
IB_DEVICE = re.compile(r"\[\d+\](\S+?:\d+/\w+)")
INTERFACE = re.compile(r"(?:^|\[\d+\])([A-Za-z][\w.@\-]*):")
CHOICE = re.compile(r"^(?:(\w+): +)?(\d+) Bytes -> Algo (\w+) proto (\w+)")
CALL = re.compile(
    r"^(\w+): opCount \w+ sendbuff \S+ recvbuff \S+ count (\d{1,18}) datatype (\d{1,2}) .*?"
    r"comm (0x[0-9a-f]+)"
)
BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)  # of NCCL's datatypes: int8, ..., bfloat16, float8
PATTERN = re.compile(r"^Pattern \d+, .*?\btype (\w+/\w+)")
GDR = re.compile(r"^NET/\w+ : GPU Direct RDMA Disabled for \w+ (?:\d+ )?'?([^'\s]+)")
TABLE_HEAD = re.compile(r"^(Algorithm|Protocol) +\|")
TABLE_ROW = re.compile(r"^(\w+) \|(?: *[\d.]+/ *[\d.]+ \|?)+")
TABLE_CELL = re.compile(r"\| *(\d{1,9}\.\d{1,3})/ *(\d{1,9}\.\d{1,3})\b")
WATCHDOG = re.compile(r"Watchdog caught collective operation timeout: (.{1,300})")


def read_nccl_log(path: str | Path) -> NcclLog:
    """What a debug log says; raises `InvalidInput` for a file without a line of NCCL's."""
    left: list[Left] = []
    cut: list[int] = []
    gathered = Gathered()
    counts: Counter[str] = Counter()
    for line in lines_of(path, left=left, cut=cut):
        counts[_take(line, gathered)] += 1
    if not counts["known"] + counts["unknown"]:
        raise refusal(path, "has no line of NCCL's", hint=HINT)
    reasons = {"unknown": "messages without figures, or not known", "other": "not written by NCCL"}
    for which, reason in reasons.items():
        if counts[which]:
            what = f"{which} lines" if which == "unknown" else "lines of other programs"
            left.append(Left(what=what, count=counts[which], time_us=0.0, reason=reason))
    if cut:
        reason = "cut at 16 KiB"
        left.append(Left(what="long lines", count=len(cut), time_us=0.0, reason=reason))
    return gathered.log(str(path), tuple(left))


def _take(line: str, gathered: Gathered) -> str:
    """Notes what a line says; "known", "unknown" (of NCCL), or "other"."""
    if "Watchdog caught" in line and (found := WATCHDOG.search(line)):
        gathered.timeout(found[1])
        return "known"
    messages = [gathered.speaks(said) for said in said_in(line)]
    if not messages:
        return (
            "known" if "version" in line and _version(Said("VERSION", line), gathered) else "other"
        )
    known = [_heard(said, gathered) for said in messages]
    return "known" if any(known) else "unknown"


def _heard(said: Said, gathered: Gathered) -> bool:
    if said.level == "WARN":
        gathered.warning(said.text)
        return True
    return any(hear(said, gathered) for hear in HEARING)


def _version(said: Said, gathered: Gathered) -> bool:
    text = said.text
    if not text.startswith(("NCCL", "RCCL")) and said.level != "VERSION":
        return False
    found = VERSION.search(text)
    if found is None:
        return False
    gathered.version(found[1].upper(), found[2])
    return True


def _communicator(said: Said, gathered: Gathered) -> bool:
    found = COMM.search(said.text) if "comm 0x" in said.text else None
    if found is None:
        return False
    pairs: dict[str, Any] = dict(COMM_PAIR.findall(found[4]))
    gathered.communicator(
        said,
        ident=found[1],
        rank=int(found[2]),
        nranks=int(found[3]),
        pairs=pairs,
        complete="Init COMPLETE" in said.text,
    )
    return True


def _link(said: Said, gathered: Gathered) -> bool:
    found = LINK.match(said.text) if said.text.startswith("Channel ") else None
    if found is None:
        return False
    gathered.link(said, channel=int(found["channel"]), via=found["via"], ident=found["comm"])
    return True


def _channels(said: Said, gathered: Gathered) -> bool:
    if found := CHANNELS.match(said.text):
        gathered.changes(said, channels=int(found[1]))
    elif found := RINGS.search(said.text):
        gathered.changes(said, gdr=found[1] == "1")
    elif found := TIMINGS.match(said.text):
        gathered.timing(said, rank=int(found[1]), nranks=int(found[2]), seconds=float(found[3]))
    return found is not None


def _setting(said: Said, gathered: Gathered) -> bool:
    found = SETTING.match(said.text)
    if found is None:
        return False
    gathered.setting(found[1], found[2].removesuffix(" to environment").rstrip(". "))
    return True


def _network(said: Said, gathered: Gathered) -> bool:
    text = said.text
    if found := NETWORK.match(text):
        gathered.network(said, found[1])
    elif text.startswith("NET/IB") and "No device found" in text:
        gathered.ib_missing = True
    elif found := USING.match(text):
        devices = IB_DEVICE.findall(found[2]) or INTERFACE.findall(found[2].partition("; OOB")[0])
        gathered.interfaces(found[1], devices)
    elif text.startswith("Call to connect returned"):
        gathered.connect_retries += 1
    else:
        return False
    return True


def _choice(said: Said, gathered: Gathered) -> bool:
    found = CHOICE.match(said.text)
    if found is None:
        return False
    gathered.choice(said, name_of_algorithm(found[3], found[4]))
    return True


def _call(said: Said, gathered: Gathered) -> bool:
    found = CALL.match(said.text) if " opCount " in said.text else None
    if found is None:
        return False
    kind = int(found[3])
    size = int(found[2]) * (BYTES[kind] if kind < len(BYTES) else 1)
    gathered.call(said, found[1], size, ident=found[4])
    return True


def _graph(said: Said, gathered: Gathered) -> bool:
    if found := PATTERN.match(said.text):
        gathered.path(found[1])
    elif found := GDR.match(said.text):
        gathered.interfaces(NO_GDR, [found[1]])
    return found is not None


def _tuning(said: Said, gathered: Gathered) -> bool:
    if found := TABLE_HEAD.match(said.text):
        cells = [cell.strip() for cell in said.text.split("|")[1:] if cell.strip()]
        gathered.table_head(said, found[1], cells)
    elif found := TABLE_ROW.match(said.text):
        pairs = [(float(a), float(b)) for a, b in TABLE_CELL.findall(said.text)]
        gathered.table_row(said, found[1], pairs)
    return found is not None


HEARING: tuple[Callable[[Said, Gathered], bool], ...] = (
    _link,
    _call,
    _choice,
    _communicator,
    _channels,
    _setting,
    _network,
    _version,
    _tuning,
    _graph,
)
