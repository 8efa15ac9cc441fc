"""Checks that run no graph, one subject per file."""
