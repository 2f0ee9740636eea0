"""What a run tells: a line for who watches, metrics.jsonl, TensorBoard, Weights & Biases, traces.

`record` is what is known of a step, `teller` hands it to every place it is told to; `line` and
`lines` are for people, `metrics` for programs, `boards` for TensorBoard and Weights & Biases;
`profiling` writes traces of a window of steps.
"""
