"""The errors: what each is, so that a program can tell them apart."""

from __future__ import annotations

ERRORS = {
    "LnbnnError": Exception,
    "InvalidInputError": ValueError,
    "UnknownNameError": ValueError,
    "MissingExtraError": ImportError,
    "DatasetError": OSError,
    "ImageReadError": OSError,
    "ModelFormatError": OSError,
    "ModelInUseError": OSError,
    "UntrustedNetworkError": Exception,
}


def test_errors():
    from lnbnn import errors

    assert sorted(errors.__all__) == sorted(ERRORS)
    for name, base in ERRORS.items():
        found = getattr(errors, name)
        assert issubclass(found, base)
        assert issubclass(found, errors.LnbnnError)
        assert found.__doc__
