"""The page: a model in the browser. Each request is checked, calls the package, and gets JSON or a picture."""
