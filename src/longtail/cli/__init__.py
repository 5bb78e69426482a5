"""The command line. Each command is a file; the work is imported inside, so that --help needs no torch."""
