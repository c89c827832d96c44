"""From picture files to features."""
