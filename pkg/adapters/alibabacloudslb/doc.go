// Package alibabacloudslb reconciles the traffic of pods behind Classic Load Balancers of
// Alibaba Cloud (SLB, CLB) with their lifecycle. It is an adapter of package
// resourceconsist, with Services as employers and pods as employees.
//
// Observed Services, the default, are for clusters where Alibaba's cloud controller manager
// (CCM) registers pods at the load balancer: it removes an unready pod, and PodOps makes a
// pod unready by the readiness gate. The adapter changes nothing there. It reads the
// vServer groups of the Service and confirms that a pod's traffic is on or off.
//
// Managed Services (annotation podops.dev/slb-backends: managed) are for clusters without
// the CCM. The adapter adds pods to the vServer groups that an annotation names, changes
// their weight, and removes them.
//
// The package is a separate Go module, since Alibaba's SDK has many dependencies.
package alibabacloudslb
