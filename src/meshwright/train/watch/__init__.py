"""What a rank tells of itself while it works, and what is made of it when it tells nothing new.

`heart` is a rank's own record of its step and phase, `signals` how it is asked to stop, `lag`
names the ranks that hold the others up. Nothing here imports torch.
"""
