"""Publish, preload, serve, answer: the pods that the program renders, run with the real vLLM."""
