"""How: workload, plan, mesh, placement and stages.

The package is also the verb: `meshwright.plan("llama-3.1-70b", "H100:8", ...)` searches for a plan
(`meshwright.api.plan`, which stands above everything here and is looked up when it is called).
"""

from meshwright.base.verb import make_verb

make_verb(__name__, home="meshwright.api", name="plan")
