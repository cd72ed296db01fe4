package v1alpha1

// ManagerName is the name of the Deployment, the ServiceAccount and the Lease of the manager in the manifests, which
// grant rights on that Lease.
const ManagerName = "podops-controller-manager"
