"""Releasing many models: each exported, verified and published, resumable, with one ledger of it all."""
