"""Outputs to answers, one file for each form; pure functions on arrays."""
