"""The rehearsal: the real Pulumi engine runs the real program against a cloud that is a file.

`python -m lab.rehearsal up STACK` is its command; README.md says what is real and what is stood in for.
"""
