// Package resourceconsist keeps a provider outside of the cluster (a load balancer, a
// registry) in step with objects inside: employers, such as Services, and the employees
// they select, such as Pods. An adapter returns the expected and the current state and
// carries out changes; everything else is implemented here:
//
//	gather   read the expected and the current state, and the pods
//	plan     create, update and delete, traffic-off work first
//	act      in small batches; a failed item does not stop the others
//	confirm  read the provider again
//	protect  add the protection finalizer to a pod when the provider confirms
//	         that its traffic is on, and remove it when it confirms that it is off
//
// The protection finalizer holds back the operations of package lifecycle: a pod is
// operated on only after every employer has confirmed that its traffic is off.
package resourceconsist
