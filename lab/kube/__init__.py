"""The program against a real Kubernetes: control plane and Pulumi's provider are real, AWS and the nodes stood in for.

- `tools`: gets kube-apiserver and the like, etcd, kubectl, helm, and Pulumi's Kubernetes provider
- `control_plane`: starts and ends them on loopback, as ordinary processes
- `cloud_nodes`: the nodes that the stand-in cloud's node groups stand for
- `kubelet`: registers these nodes and plays their kubelet; `pods` is the life of one pod, `containers` what runs in it
- `charts`: what is installed where no folder of the real charts is given
"""
