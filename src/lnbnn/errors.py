"""The exceptions that lnbnn raises.

Each message says what was expected, what was given, and what to do next.
"""

__all__ = [
    "DatasetError",
    "ImageReadError",
    "InvalidInputError",
    "LnbnnError",
    "MissingExtraError",
    "ModelFormatError",
    "ModelInUseError",
    "UnknownNameError",
    "UntrustedNetworkError",
]


class LnbnnError(Exception):
    """Base of all errors that lnbnn raises."""


class InvalidInputError(LnbnnError, ValueError):
    """A setting, an array or a label is invalid."""


class UnknownNameError(LnbnnError, ValueError):
    """A name that is in no registry."""


class MissingExtraError(LnbnnError, ImportError):
    """An optional dependency is not installed."""


class DatasetError(LnbnnError, OSError):
    """A folder of images is missing, empty or not laid out as expected."""


class ImageReadError(LnbnnError, OSError):
    """An image file cannot be read as a picture."""


class ModelFormatError(LnbnnError, OSError):
    """A model folder is missing, truncated, damaged or of another version."""


class ModelInUseError(LnbnnError, OSError):
    """Another process is changing the model."""


class UntrustedNetworkError(LnbnnError):
    """A model names a network outside its folder, and the user has not allowed it."""
