"""What a model folder is: its manifest, its scan and the structure that a server relies on.

Shared by the copier (`preload`) and by publishing, so that both judge a folder by the same rules. It runs inside pods:
Python 3.10 or newer, standard library only, no subpackages. Paths are bytes, because a model folder may hold names
that are no UTF-8.
"""
