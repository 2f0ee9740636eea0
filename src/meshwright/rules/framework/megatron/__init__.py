"""What Megatron-Core and what is built on it demand: Megatron-LM, Bridge, MindSpeed and others.

Scopes named megatron-core hold for every program on top of the library; those named megatron-lm are
checks of its own command line. Ranges of versions were found by running the checks on the released
wheels from 0.12 to 0.19 and by reading the tagged sources from 0.5 on.
"""
