// Package processes is a kubelet whose containers are processes of this machine. It runs
// beside the simulated kubelets of the local control plane, on nodes of its own, and cordons
// their nodes: pods that are created afterwards are processes.
//
// As with a real kubelet, a pod
//
//   - gets an address of its own, in a range of loopback addresses, which it listens on;
//   - runs the program of its image with its arguments, environment and field references;
//   - finds the other pods by the names of its namespace: the program gets the path of a file
//     in the format of /etc/hosts, since there is no DNS;
//   - has its data in a directory for each claim, which stays when the pod goes and is removed
//     with the claim;
//   - is ready as its HTTP readiness probe reports and its readiness gates permit;
//   - gets SIGTERM when it is deleted, SIGKILL after its grace period, and is gone when its
//     process has ended;
//   - is restarted when its process ends, or its image changes, as its restart policy states.
//
// A pod has one container, without init containers, lifecycle hooks, and liveness probes.
// Its volumes are claims and empty directories. Paths of mounted volumes in arguments are
// replaced by the directories.
package processes
