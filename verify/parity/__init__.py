"""Parity of two live systems: their answers to the same inputs, recorded once each, compared without running either."""
