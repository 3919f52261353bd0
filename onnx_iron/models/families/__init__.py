"""The kinds of models that a checkpoint may hold, a module each that ends with its ``FAMILY``."""
