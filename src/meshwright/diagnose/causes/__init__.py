"""What costs a run time: rules each with its evidence and its lever."""
