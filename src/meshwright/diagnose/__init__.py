"""Traces of a run that was measured: where its time went, why, and what to change.

`trace` reads a rank's file into columns, `split` accounts for every nanosecond of its steps,
`path` finds what its length hangs on, `across` sets the ranks beside each other, `pipeline` reads
traces of whole operations, `logs` NCCL's and the allocator's own records, `causes` names what costs
time and what to change, `calibrate` makes a hardware file of what was measured.

The package is also the verb: `meshwright.diagnose("traces/")` answers with a `Diagnosis`
(`meshwright.api.diagnosing`, which stands above everything here, looked up when it is called).
"""

from meshwright.base.verb import make_verb

make_verb(__name__, home="meshwright.api.diagnosing", name="diagnose")
