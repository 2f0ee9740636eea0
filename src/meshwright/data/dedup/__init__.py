"""Duplicates: exact ones by a hash of the text, near ones by MinHash and then verified.

`exact` and `minhash` give every document the keys by which its duplicates are found, `links` finds
documents with equal keys and splits them into independent groups, `greedy` decides within a group.
The stages `link`, `shingle` and `decide` run them over units of work.
"""
