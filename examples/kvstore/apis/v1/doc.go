// Package v1 is the API of the example operator kvstore-operator: the KVStoreCluster resource, a
// replicated key-value store whose upgrades, scale-ins and deletions keep its data.
//
// +kubebuilder:object:generate=true
// +groupName=kvstore.example.com
package v1
