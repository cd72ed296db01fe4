package servers

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// process is one run of the containers of a pod: a restarted container is another process
// at the same address.
type process struct {
	pod types.UID
	run string // the IDs of the containers
}

// processOf returns the process of a pod, and false while it does not run. It runs when
//
//   - the pod has an address,
//   - it is not being deleted: a server without a handler for SIGTERM ends at once,
//   - its phase is Running, and
//   - every container runs.
func processOf(pod *corev1.Pod) (process, bool) {
	statuses := pod.Status.ContainerStatuses
	if pod.Status.PodIP == "" || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning || len(statuses) == 0 {
		return process{}, false
	}
	runs := make([]string, 0, len(statuses))
	for _, status := range statuses {
		if status.State.Running == nil {
			return process{}, false
		}
		runs = append(runs, status.ContainerID)
	}
	return process{pod: pod.UID, run: strings.Join(runs, ",")}, true
}
