package adaptertest

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// operationID and operationType belong to the operation of an employee whose traffic should be
	// off.
	operationID   = "rollout"
	operationType = "upgrade"

	// since is the time of every condition and lifecycle label, in Unix seconds.
	since = 1767225600
)

// employeePod returns the pod as the lifecycle leaves it: available, preparing, or without an
// address because it is not running yet.
func employeePod(employer string, employee Employee) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      employee.Name,
			Labels: map[string]string{
				appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue,
				EmployerLabelKey:             employer,
			},
		},
		Spec: corev1.PodSpec{
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: appsv1alpha1.ServiceReadyGate}},
			Containers:     []corev1.Container{{Name: "main", Image: "registry.example.com/web:v1"}},
		},
	}
	if employee.Terminating {
		pod.Finalizers = []string{heldFinalizer}
	}
	if employee.Address == "" {
		pod.Status.Phase = corev1.PodPending
		return pod
	}
	stamp := strconv.FormatInt(since*1e9, 10)
	gate := corev1.ConditionTrue
	if employee.Off {
		gate = corev1.ConditionFalse
		pod.Labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+operationID] = operationType
		pod.Labels[appsv1alpha1.OperationPermissionLabelPrefix+"/"+operationType] = stamp
		for _, prefix := range []string{
			appsv1alpha1.OperatingLabelPrefix, appsv1alpha1.PreCheckedLabelPrefix,
			appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.PreparingLabelPrefix,
		} {
			pod.Labels[prefix+"/"+operationID] = stamp
		}
	} else {
		pod.Labels[appsv1alpha1.ServiceAvailableLabelKey] = stamp
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{
			condition(appsv1alpha1.ServiceReadyGate, gate),
			condition(corev1.ContainersReady, corev1.ConditionTrue),
			condition(corev1.PodReady, corev1.ConditionTrue),
		},
		PodIP:  employee.Address,
		PodIPs: []corev1.PodIP{{IP: employee.Address}},
	}
	return pod
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.Unix(since, 0)}
}
