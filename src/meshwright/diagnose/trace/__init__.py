"""Trace files of every layout and era, read into columns of one rank."""
