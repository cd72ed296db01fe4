// Package resourceconsist keeps a provider outside of the cluster (a load balancer, a
// registry) in step with objects inside: employers, such as Services, and the employees
// they select, such as Pods. An adapter says what is expected and what is there, and
// carries out changes; everything else is here and written once:
//
//	gather   what the adapter expects, what the provider has, the pods
//	plan     create, update and delete, traffic-off work first
//	act      in small batches; one failure stops nobody else
//	confirm  ask the provider again
//	protect  the protection finalizer of a pod goes on when the provider confirms
//	         that its traffic is on, and off when it confirms that it is off
//
// The protection finalizer is what holds back operations of package lifecycle: a pod is
// operated on only after every employer has confirmed that its traffic is off.
package resourceconsist
