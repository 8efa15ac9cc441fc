"""Is the graph the checkpoint."""
