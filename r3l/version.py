"""The version of the package: stages, reports and model cards name it."""

__version__ = "0.1.0"
