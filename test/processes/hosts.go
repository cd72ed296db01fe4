package processes

import (
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// named is a pod as the file of hosts has it.
type named struct {
	pod     *corev1.Pod
	address string
	ready   bool
}

// publish writes the file of hosts of a namespace: the names that the DNS of a cluster would
// have, for its pods.
func (k *Kubelet) publish(namespace string) {
	k.hosts.Lock()
	defer k.hosts.Unlock()
	services, err := k.services.Services(namespace).List(labels.Everything())
	if err != nil {
		k.fail(fmt.Errorf("listing services: %w", err))
		return
	}
	file := k.HostsFile(namespace)
	text := hostsFile(k.named(namespace), services)
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		k.fail(fmt.Errorf("writing the file of hosts: %w", err))
		return
	}
	if err := os.Rename(file+".new", file); err != nil {
		k.fail(fmt.Errorf("replacing the file of hosts: %w", err))
	}
}

// named returns the pods of a namespace that have an address, by name.
func (k *Kubelet) named(namespace string) []named {
	k.mu.Lock()
	defer k.mu.Unlock()
	var pods []named
	for _, w := range k.workers {
		if w.namespace != namespace {
			continue
		}
		if n := w.named(); n.address != "" {
			pods = append(pods, n)
		}
	}
	slices.SortFunc(pods, func(a, b named) int { return strings.Compare(a.pod.Name, b.pod.Name) })
	return pods
}

// hostsFile returns a line for each pod: its own name if it has a subdomain, and the names of
// the Services that select it. A Service has the pods that are ready and do not terminate, and
// all pods if it publishes addresses that are not ready.
func hostsFile(pods []named, services []*corev1.Service) string {
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b *corev1.Service) int { return strings.Compare(a.Name, b.Name) })
	var text strings.Builder
	for _, p := range pods {
		names := []string{}
		if p.pod.Spec.Subdomain != "" && p.pod.Spec.Hostname != "" {
			names = append(names, domains(p.pod.Spec.Hostname+"."+p.pod.Spec.Subdomain, p.pod.Namespace)...)
		}
		for _, s := range services {
			selects := len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.pod.Labels))
			if selects && (s.Spec.PublishNotReadyAddresses || p.ready && p.pod.DeletionTimestamp == nil) {
				names = append(names, domains(s.Name, s.Namespace)...)
			}
		}
		if len(names) > 0 {
			fmt.Fprintf(&text, "%s %s\n", p.address, strings.Join(names, " "))
		}
	}
	return text.String()
}

func domains(name, namespace string) []string {
	return []string{name, name + "." + namespace, name + "." + namespace + ".svc", name + "." + namespace + ".svc.cluster.local"}
}
