"""Runs that compute on the host: what its threads did, as if it were a device's work."""
