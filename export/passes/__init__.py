"""Exact rewrites of a graph, one per file, each with what makes it exact."""
