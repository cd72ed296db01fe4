package deferreddelete

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Method is the way by which a client removes a pod.
type Method string

// The methods.
const (
	MethodDelete           Method = "Delete"
	MethodDeleteCollection Method = "DeleteCollection"
	MethodEviction         Method = "Eviction"
	MethodLabel            Method = "Label"
)

// Actor is the class of the client that removes a pod. The class decides whether a request is
// held, who carries it out, and when it lapses.
type Actor string

// The actors.
const (
	// ActorOwner is the controller of the pod's owner. It repeats the delete until the pod is
	// deleted or no longer surplus, with a back-off of up to 17 minutes.
	ActorOwner Actor = "Owner"

	// ActorFormerOwner is a controller of workloads that does not own the pod: its cache does not show yet that
	// the pod was orphaned or released. It deletes only pods that it owns.
	ActorFormerOwner Actor = "FormerOwner"

	// ActorController is the controller of an owner whose kind Kubernetes does not have. It
	// repeats the delete when its pod changes, or names another pod.
	ActorController Actor = "Controller"

	// ActorEvictor is a client of the eviction API, such as kubectl drain.
	ActorEvictor Actor = "Evictor"

	// ActorClient is any other client, such as kubectl delete.
	ActorClient Actor = "Client"

	// ActorLabel is the label to-delete. Removing it withdraws the request.
	ActorLabel Actor = "Label"

	// ActorManager is PodOps.
	ActorManager Actor = "Manager"

	// ActorScheduler is the scheduler, which removes a pod for another pod of higher priority.
	ActorScheduler Actor = "Scheduler"

	// ActorSystem is a part of Kubernetes that must never wait: a kubelet, the namespace
	// controller, the garbage collectors, the controllers of nodes.
	ActorSystem Actor = "System"
)

// Kinds of owners whose controllers delete pods.
const (
	kindReplicaSet  = "ReplicaSet"
	kindStatefulSet = "StatefulSet"
	kindDaemonSet   = "DaemonSet"
	kindJob         = "Job"
	kindDeployment  = "Deployment" // of a pod that surges
)

// ownerKinds returns the kinds of owners whose controllers delete pods.
func ownerKinds() []string { return []string{kindReplicaSet, kindStatefulSet, kindDaemonSet, kindJob} }

// User names of Kubernetes.
const (
	anyServiceAccount    = "system:serviceaccount:"
	serviceAccounts      = anyServiceAccount + "kube-system:"
	userControllers      = "system:kube-controller-manager" // with --use-service-account-credentials=false
	userScheduler        = "system:kube-scheduler"
	groupNodes           = "system:nodes"
	userNamespaces       = serviceAccounts + "namespace-controller"
	userGarbageCollector = serviceAccounts + "generic-garbage-collector"
	userPodGC            = serviceAccounts + "pod-garbage-collector"
	userNodes            = serviceAccounts + "node-controller"
)

// controllerUser returns the user that controls a kind of owner, empty for kinds that
// Kubernetes does not have.
func controllerUser(kind string) string {
	switch kind {
	case kindReplicaSet:
		return serviceAccounts + "replicaset-controller"
	case kindStatefulSet:
		return serviceAccounts + "statefulset-controller"
	case kindDaemonSet:
		return serviceAccounts + "daemon-set-controller"
	case kindJob:
		return serviceAccounts + "job-controller"
	default:
		return ""
	}
}

// ClassifyActor returns the class of a request's client. All controllers may share one user: then
// the owner of the pod decides which of them it is, and a request that its state does not
// explain is a delete by the controller of the owner. manager is the user of PodOps.
func ClassifyActor(user string, groups []string, method Method, pod *corev1.Pod, manager string) Actor {
	switch {
	case user == manager && manager != "":
		return ActorManager
	case slices.Contains(groups, groupNodes), user == userNamespaces, user == userGarbageCollector, user == userPodGC, user == userNodes:
		return ActorSystem
	case user == userScheduler:
		return ActorScheduler
	case method == MethodEviction:
		return ActorEvictor
	case user == userControllers && controllerUser(OwnerKind(pod)) == "":
		return ActorSystem // no controller of Kubernetes but these deletes pods of other owners
	case user == userControllers || user == controllerUser(OwnerKind(pod)):
		return ActorOwner
	case slices.ContainsFunc(ownerKinds(), func(kind string) bool { return user == controllerUser(kind) }):
		return ActorFormerOwner
	case isCustomController(user, pod):
		return ActorController
	default:
		return ActorClient
	}
}

// isCustomController reports whether a user may be the controller of a pod's owner, of a kind
// that Kubernetes does not have.
func isCustomController(user string, pod *corev1.Pod) bool {
	kind := OwnerKind(pod)
	isCustom := kind != "" && kind != kindDeployment && controllerUser(kind) == ""
	return isCustom && strings.HasPrefix(user, anyServiceAccount) && !strings.HasPrefix(user, serviceAccounts)
}

// OwnerKind returns the kind of a pod's controller if its API group is Kubernetes' own, or
// else its kind and group; empty for a pod without a controller.
func OwnerKind(pod *corev1.Pod) string {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return ""
	}
	group, _, _ := strings.Cut(controller.APIVersion, "/")
	if controller.Kind == kindJob && group == "batch" || controller.Kind != kindJob && group == "apps" {
		return controller.Kind
	}
	return controller.Kind + "." + group
}
