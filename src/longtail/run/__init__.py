"""The run folder: everything that is written to disk, and everything that is read back from there."""
