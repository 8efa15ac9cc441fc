"""The `vela` command's root, and the tools around it."""
