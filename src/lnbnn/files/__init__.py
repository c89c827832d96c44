"""Files on disk: whole or not at all, regular ones only, plain arrays, locks."""
