"""`make remove-revision`: removes an old revision of a model from the file system; a tool for people.

The program never imports it.
"""
