"""Efficiencies of a machine out of its traces: GEMM, attention, collectives."""
