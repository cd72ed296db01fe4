// Package admission is the admission chain of a cluster with PodOps, for the API server of package apiserver. It reads
// the webhook configurations and ValidatingAdmissionPolicies of the manifests, decides with the matchers and the CEL of
// Kubernetes which of them a request concerns, and sends reviews to the handlers of managers in the same process.
//
// The order is that of a kube-apiserver: mutating webhooks one after the other, ValidatingAdmissionPolicies, validating
// webhooks all at once, quotas. Others have a part in it, too: Objections are policies, webhooks and quotas that are not
// of PodOps, and deny or delay what they please.
//
// A webhook of matchPolicy Equivalent sees the version of the request only.
package admission
