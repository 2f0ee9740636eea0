"""Traces of whole operations of a pipeline, and their what-if replay."""
