"""Measures the machine it runs on and writes a cluster file that predictions use.

`timing` says how long a call takes, `kernels`, `pieces`, `links` and `hosts` what is called on each
rank, `fitting` makes curves of the times, `measure` runs all of it, `file` writes it down.
"""
