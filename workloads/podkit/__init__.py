"""What every program in a pod needs: how it ends, what it tells people and the kubelet, threads, locks, patience.

Python 3.10 or newer, standard library only, no subpackages; it imports none of the programs, nor `modelfolder`.
"""
