"""The infrastructure of one environment: settings, then one component a concept.

Imports run in one direction only: instance_types -> settings -> components -> workloads -> __main__.
"""
