"""The only place for torch and transformers: tracing, passes, the PyTorch reference."""
