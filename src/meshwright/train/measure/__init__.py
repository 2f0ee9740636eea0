"""Memory and traffic of one rank, read off PyTorch's own tensors and collectives.

`storage` follows every storage, `traffic` every collective; `step` marks the parts of a training
step. Under `adapters.fake` all of it runs for a plan of any size in one process without a device.
"""
