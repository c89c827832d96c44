"""A model on disk and how it changes."""
