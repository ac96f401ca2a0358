"""The command line: parse, call, print, exit code. Heavy imports stay inside the commands."""
