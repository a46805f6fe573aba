"""What is true of Kubernetes' own kinds of objects, whoever asks."""

CLUSTER_SCOPED = frozenset(
    {
        *("Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"),
        *("StorageClass", "CSIDriver", "CSINode", "VolumeAttachment", "VolumeAttributesClass", "PriorityClass"),
        *("RuntimeClass", "IngressClass", "APIService", "CertificateSigningRequest", "ClusterTrustBundle"),
        *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "MutatingAdmissionPolicy"),
        *("MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        *("FlowSchema", "PriorityLevelConfiguration", "DeviceClass", "DeviceTaintRule", "ResourceSlice"),
        *("ServiceCIDR", "IPAddress", "StorageVersion", "StorageVersionMigration", "TokenReview"),
        *("SubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectReview", "SelfSubjectRulesReview"),
    }
)
"""The built-in kinds without a namespace."""
