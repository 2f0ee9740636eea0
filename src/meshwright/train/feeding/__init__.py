"""From data to micro-batches on the device.

`kinds` says what a source is, `opening` opens it; `shards`, `indexed` and `synthetic` make the
arrays of a step, `rows` what the last two share; `feeder` makes steps ahead of time and moves them
to the device. What sample n is depends on the data and the seed alone, and step k takes the next
`global_batch_size` samples: the number of samples consumed is all that a checkpoint has to keep,
whatever plan or world size goes on from it.
"""
