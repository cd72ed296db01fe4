package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// history holds the commands that the load balancer executed for each pod, and the labels
// that PodOps set on the pods, with their times: both clocks are of this machine. It is
// safe for concurrent use.
type history struct {
	mu sync.Mutex

	// since is the time from which on the history counts: it excludes the start of the
	// workload.
	since time.Time

	// commands holds the states that servers were set to, by the name of the pod, in order.
	commands map[string][]commands

	// marks holds labels that PodOps set, with the times in them.
	marks map[mark]bool
}

// commands is a command that was executed.
type commands struct {
	at    time.Time
	state string // ready, drain, maint, or gone
}

// mark is one of two labels on a pod that contain the time at which they were set.
type mark struct {
	pod  string
	kind string // operate or service-available
	at   time.Time
}

func newHistory() *history {
	return &history{commands: map[string][]commands{}, marks: map[mark]bool{}}
}

// command adds an executed command: "set server web/<name> state maint". Servers are named
// <namespace>_<service>_<pod>_<hash>.
func (h *history) command(at time.Time, line string) {
	words := strings.Fields(line)
	var state string
	switch {
	case len(words) == 5 && words[0] == "set" && words[1] == "server" && words[3] == "state":
		state = words[4]
	case len(words) == 3 && words[0] == "del" && words[1] == "server":
		state = "gone"
	default:
		return
	}
	parts := strings.Split(words[2], "_")
	if len(parts) != 4 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commands[parts[2]] = append(h.commands[parts[2]], commands{at, state})
}

// see adds the labels of a pod.
func (h *history) see(pod *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, value := range pod.Labels {
		var kind string
		switch {
		case strings.HasPrefix(key, appsv1alpha1.OperateLabelPrefix+"/"):
			kind = "operate"
		case key == appsv1alpha1.ServiceAvailableLabelKey:
			kind = "service-available"
		default:
			continue
		}
		if at, ok := lifecycle.ParseTime(value); ok {
			h.marks[mark{pod.Name, kind, at}] = true
		}
	}
}

// begin drops the history before now.
func (h *history) begin(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = now
}

// order is the result of the check of a history.
type order struct {
	operate, available int
	violations         []string
}

// order compares every mark with the last command before it: traffic off before operate,
// traffic on before service-available.
func (h *history) order() order {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found order
	for m := range h.marks {
		if m.at.Before(h.since) {
			continue
		}
		state := last(h.commands[m.pod], m.at)
		switch {
		case m.kind == "operate" && (state == "maint" || state == "gone"):
			found.operate++
		case m.kind == "service-available" && state == "ready":
			found.available++
		default:
			found.violations = append(found.violations, fmt.Sprintf("%s of pod %s at %s: the last state of its server was %q",
				m.kind, m.pod, m.at.Format(time.RFC3339Nano), state))
		}
	}
	slices.Sort(found.violations)
	return found
}

// last returns the last state before a time.
func last(states []commands, at time.Time) string {
	state := "nothing"
	for _, one := range states {
		if one.at.After(at) {
			break
		}
		state = one.state
	}
	return state
}
