"""Runs a plan on torch.distributed with transformers' models, proves it exact, measures it.

`mesh` lays ranks out, `stage` cuts a model into pipeline chunks, `parallel/` holds one file per
axis, `attention/` what runs inside transformers' attention layers, `assemble` puts them together,
`engine` computes gradients, `step` and `loop` train. `checkpoint/` keeps what was learned,
`launch/` starts processes. Each private interface of torch or transformers is in one file of
`adapters/`.

The package is also the verb: `meshwright.train("plan.toml", data="shards/", out="runs/a")` starts
the ranks (`meshwright.api.training.train`, looked up when it is called).
"""

from meshwright.base.verb import make_verb

make_verb(__name__, home="meshwright.api.training", name="train")
