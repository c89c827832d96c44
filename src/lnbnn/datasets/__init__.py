"""Labelled images: folders and lists of them, seeded splits, and a small set that needs no download."""
