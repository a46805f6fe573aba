"""What is written down of Kubernetes' kinds is what its Python client, made from its API's schema, knows of them."""

from kubernetes import client

from lab.kinds import CLUSTER_SCOPED

# Makes an object of any custom kind.
GENERIC = "clustercustomobject"


def test_the_kinds_without_a_namespace_are_those_that_the_api_makes_without_one() -> None:
    apis = [getattr(client, name) for name in dir(client) if name.endswith("Api")]
    calls = {call for api in apis for call in dir(api) if call.startswith("create_") and "_with_http_info" not in call}
    made = {call.removeprefix("create_").replace("_", "") for call in calls if "_namespaced_" not in call}

    assert {kind.lower() for kind in CLUSTER_SCOPED} == made - {GENERIC}
