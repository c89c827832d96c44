"""The mathematics of the methods."""
