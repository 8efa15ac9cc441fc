"""The commands of `vela`, one module each, loaded when asked for."""
