// Package alibabacloudslb keeps the traffic of pods behind Classic Load Balancers of
// Alibaba Cloud (SLB, CLB) in step with their lifecycle. It is an adapter of package
// resourceconsist, with Services as employers and pods as employees.
//
// Observed Services, the default, are those of clusters where Alibaba's cloud controller
// manager (CCM) registers pods at the load balancer: it takes a pod out when the pod
// turns unready, which PodOps makes it do by the readiness gate. The adapter changes
// nothing there. It reads the vServer groups of the Service and confirms that a pod's
// traffic is on or off.
//
// Managed Services (annotation podops.dev/slb-backends: managed) are for clusters without
// the CCM. The adapter adds pods to the vServer groups that an annotation names, changes
// their weight, and takes them out again.
//
// The package is a module of its own, since Alibaba's SDK brings many dependencies.
package alibabacloudslb
