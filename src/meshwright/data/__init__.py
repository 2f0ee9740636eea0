"""From raw text to packed shards: clean, without duplicates, the same for any number of workers.

Five stages of restartable units: scan (read, repair, filter, keys), decide (duplicates), tokenize,
arrange (split, mix, shuffle, pack) and emit (Megatron's .bin and .idx, the pack plan, a manifest).
Nothing here needs torch but `loader.dataset`, and nothing but `meshwright.base` is imported.
"""
