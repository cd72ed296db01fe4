package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
)

// permit is a permit of PodOps, and the leader of the store just after it.
type permit struct {
	pod    string
	uid    types.UID
	at     time.Time
	leader string
	term   uint64
}

// permits records the permits of a namespace from its labels, as they are written.
type permits struct {
	watch watch.Interface
	store *operator.HTTPStore
	ended chan struct{}
	seen  []permit // valid after ended is closed
}

// recordPermits records until end.
func (s *show) recordPermits(ctx context.Context) (*permits, error) {
	watched, err := s.admin.Watch(ctx, &corev1.PodList{}, client.InNamespace(s.namespace), client.MatchingLabels(plan.MemberLabels(name)))
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	p := &permits{watch: watched, store: operator.NewHTTPStore(clock.RealClock{}), ended: make(chan struct{})}
	go p.run(ctx)
	return p, nil
}

func (p *permits) run(ctx context.Context) {
	defer close(p.ended)
	addresses, known := map[string]string{}, map[string]bool{}
	for event := range p.watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		addresses[pod.Name] = pod.Status.PodIP
		for key, value := range pod.Labels {
			nanos, err := strconv.ParseInt(value, 10, 64)
			permitted := strings.HasPrefix(key, appsv1alpha1.PreCheckedLabelPrefix+"/") && err == nil
			if id := string(pod.UID) + key + value; permitted && !known[id] {
				known[id] = true
				seen := p.store.Look(ctx, addresses)
				p.seen = append(p.seen, permit{pod: pod.Name, uid: pod.UID, at: time.Unix(0, nanos), leader: seen.Leader, term: seen.Term})
			}
		}
	}
}

// end returns the permits so far.
func (p *permits) end() []permit {
	p.watch.Stop()
	<-p.ended
	return p.seen
}

// hookLine is a line of the log of the operator about a call of its hook.
type hookLine struct {
	At       time.Time `json:"ts"`
	Message  string    `json:"msg"`
	Pod      string    `json:"pod"`
	UID      types.UID `json:"uid"`
	Approved bool      `json:"approved"`
	Leader   string    `json:"leader"`
	Term     uint64    `json:"term"`
	From     string    `json:"from"`
	Cluster  struct {
		Namespace string `json:"namespace"`
	} `json:"cluster"`
}

// hookLines reads what the hook has logged about clusters of the namespace.
func (s *show) hookLines() ([]hookLine, error) {
	log := operatorLog
	if s.standby != nil {
		log = standbyLog
	}
	file, err := os.Open(filepath.Join(s.dir, log))
	if err != nil {
		return nil, fmt.Errorf("reading the log of the operator: %w", err)
	}
	defer file.Close()
	var lines []hookLine
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		var line hookLine
		// Other lines of the log have other fields, and the last of a killed operator may be cut.
		if err := json.Unmarshal(scanner.Bytes(), &line); err == nil && line.Cluster.Namespace == s.namespace {
			lines = append(lines, line)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the log of the operator: %w", err)
	}
	return lines, nil
}

var errPermit = errors.New("a pod was permitted against the hook")

// checkPermit returns an error unless the hook had approved the pod before its permit, and it did not lead from the
// approval to the permit. A term has one leader. It returns whether the hook has moved leadership away from the pod.
func checkPermit(p permit, lines []hookLine) (moved bool, err error) {
	var last *hookLine
	for i, line := range lines {
		switch {
		case !line.At.Before(p.at):
		case line.From == p.pod && line.Message == "Moved leadership":
			moved = true
		case line.UID == p.uid && line.Approved:
			last = &lines[i]
		}
	}
	switch {
	case last == nil:
		return moved, fmt.Errorf("%w: pod %s at %s: not approved before", errPermit, p.pod, p.at)
	case last.Leader == p.pod:
		return moved, fmt.Errorf("%w: pod %s led when it was approved: %+v", errPermit, p.pod, *last)
	case last.Term != p.term && p.leader == p.pod:
		return moved, fmt.Errorf("%w: pod %s led at its permit: %+v", errPermit, p.pod, p)
	default:
		return moved, nil
	}
}

// checkPermits checks all permits of an upgrade, and prints from which pods leadership was moved. The hook has no
// leadership to move when the members have elected another leader before: on a busy machine heartbeats may be late.
func (s *show) checkPermits(permits []permit) error {
	lines, err := s.hookLines()
	if err != nil {
		return err
	}
	var from []string
	for _, p := range permits {
		moved, err := checkPermit(p, lines)
		if err != nil {
			return err
		}
		if moved {
			from = append(from, p.pod)
		}
	}
	s.print("  %d permits, each after the hook had approved the pod; it moved leadership away from %s first", len(permits),
		cmp.Or(strings.Join(from, ", "), "no pod"))
	return nil
}
