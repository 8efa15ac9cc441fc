"""Latency of live systems: equal requests replayed to each and timed, answers under load held against those alone."""
