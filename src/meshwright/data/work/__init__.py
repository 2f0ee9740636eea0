"""What a build has done, on disk, so that it can go on after any interruption."""
