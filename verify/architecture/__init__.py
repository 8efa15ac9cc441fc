"""An independent reading of config.json: the effective values that decide the maths, derived without Transformers."""

from vela.verify.architecture.reading import Architecture, read_architecture

__all__ = ["Architecture", "read_architecture"]
