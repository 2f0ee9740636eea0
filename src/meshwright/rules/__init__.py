"""What must hold, one file per section of the guidelines."""
