"""The published thing: tensor contract, manifest, bundle, records, store, model table and errors."""
