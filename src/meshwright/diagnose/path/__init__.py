"""The critical path of a rank's steps through host, device and, by its collectives, other ranks."""
