"""Private or unstable interfaces of torch and transformers, one file each.

Nothing else in `train/` names them, and for each a test says plainly when a version changes it.
"""
