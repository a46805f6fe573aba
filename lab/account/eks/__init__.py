"""EKS: what answers its operations.

A function that has the name by which boto3 calls an operation answers it: it gets the place and the request's
parameters and returns the answer's. What it refuses is said by the API reference of the operation, unless a comment
names another source.
"""
