"""Files on disk: atomic writes, regular files only, plain arrays, locks."""
