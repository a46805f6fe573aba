"""The benchmark of preload: `make bench`."""
