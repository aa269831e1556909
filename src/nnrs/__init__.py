"""Train sequence models to survive their own mistakes."""

__version__ = "0.1.0"
