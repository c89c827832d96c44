"""Labeled images: folders and lists of them, published sets, seeded splits, and a small set that needs no download."""

__all__ = ["DATASETS"]

DATASETS = {
    "caltech101": "lnbnn.data.caltech:CALTECH101",
    "caltech256": "lnbnn.data.caltech:CALTECH256",
}
"""Published sets that ``lnbnn data`` fetches: a name and the import string of its :class:`PublishedSet`."""
