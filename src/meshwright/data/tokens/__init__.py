"""Text to the ids of a vocabulary, equal to those of the library that defines it.

`tokenizer.load` is the entrance. A vocabulary is read by `huggingface` (tokenizer.json, vocab.json
with merges.txt), `ranks` (tiktoken and tekken files) or `pieces` (sentencepiece models); each knows
its reference library and how gigatoken may stand in for it. `trial` decides by encoding hostile
text with both.
"""
