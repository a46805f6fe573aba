"""`make pin-images`: asks the registries what the images' tags stand for now; a tool for developers.

The program never imports it: it reads the lock file that comes of it (`infra.images`).
"""
