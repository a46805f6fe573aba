"""Stand-ins for the aws, eks and kubernetes resource providers, for the real Pulumi engine.

The engine finds them on PATH as `pulumi-resource-NAME` and speaks gRPC with them, on loopback only. What a cloud
would hold lies in a folder, one JSON file a package, so that refresh, update and destroy mean something.

- `wire`: values as they travel, and what a provider does with them (compare, merge, cut down)
- `sdk_types`: inputs against the types of the installed SDKs; needs no server, the unit tests use it too
- `protocol`: the gRPC service that the three have in common, and the world file
- `aws`: what AWS answers, and what HashiCorp's provider checks and plans where it was built; `aws_types`: its types as
  one table; `aws_rules`: who names and keeps whom; `aws_refusals`: what AWS refuses and the provider does not know, as
  one table; `aws_account`: the same provider with an emulated account behind it
- `kubernetes`: objects and Helm releases, one set a cluster; `kubernetes_rules`: what the API server refuses in them
- `eks`: the component `eks.Cluster`, which makes the same children as the real one, through `component`

Everything they refuse begins with "stand-in for NAME:", so that nobody takes it for the cloud's own word.
"""
