package servers

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// process is one run of the containers of a pod: a restarted container is another process
// at the same address.
type process struct {
	pod types.UID
	run string // the names and restart counts of the containers
}

// processOf returns the process of a pod, and false while it does not run. It runs when
//
//   - the pod has an address,
//   - it is not being deleted: a server without a handler for SIGTERM ends at once,
//   - its phase is Running or Pending, and
//   - every container runs, or is about to start for the first time.
//
// A kubelet reports Running and Ready after the process listens. The nodes of the local control plane report both
// without a process: it listens before, so that no load balancer is faster.
func processOf(pod *corev1.Pod) (process, bool) {
	statuses := pod.Status.ContainerStatuses
	phase := pod.Status.Phase
	if pod.Status.PodIP == "" || pod.DeletionTimestamp != nil || phase != corev1.PodRunning && phase != corev1.PodPending || len(statuses) == 0 {
		return process{}, false
	}
	runs := make([]string, 0, len(statuses))
	for _, status := range statuses {
		starts := phase == corev1.PodPending && status.State.Waiting != nil && status.LastTerminationState.Terminated == nil
		if status.State.Running == nil && !starts {
			return process{}, false
		}
		runs = append(runs, fmt.Sprintf("%s#%d", status.Name, status.RestartCount))
	}
	return process{pod: pod.UID, run: strings.Join(runs, ",")}, true
}
