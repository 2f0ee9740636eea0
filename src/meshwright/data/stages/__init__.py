"""The stages of a build.

Each runs over restartable units and reads only finished units of those before it. Columns are .npy;
`layout` has their types.

| stage | a unit is | reads | writes |
|---|---|---|---|
| scan | about 16 MiB of input | the input | documents, survivors, bands, blocks, text.zst, ... |
| lines | all there is | records | lines before each stretch of a file that was cut |
| link | all there is | survivors, bands | exact duplicates, groups of candidates for near ones |
| shingle | a scan unit | text.zst | the shingles of survivors that may be near duplicates |
| decide | linked candidates | shingles | dropped |
| tokenize | a scan unit | text.zst, dropped | tokens, lengths, survivors |
| arrange | all there is | lengths | documents of every shard |
| emit | a shard | tokens | .bin, .idx, .rows.npy, .pieces.npy |

A module `stages.NAME` has `run_NAME(job, number)`, which makes one unit, and `key_NAME(job,
number)`, what that unit is made from (by `work.keys`); a unit is written under its key and is
not made again while that fits.
"""
