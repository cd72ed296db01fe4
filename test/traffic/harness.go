package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/stage"
	"github.com/podops-dev/podops/test/traffic/load"
	"github.com/podops-dev/podops/test/traffic/servers"
)

const (
	// stepPatience is the time for which a step may make no progress, stepBound the time
	// that it may take in all. A slow machine makes slow progress, a stuck machine no
	// progress.
	stepPatience = 3 * time.Minute
	stepBound    = 20 * time.Minute

	// look is the polling interval of conditions.
	look = 50 * time.Millisecond
)

// harness is shared by all runs: the cluster, servers on the addresses of its pods, and the
// file with every outcome.
type harness struct {
	stage      *stage.Stage
	options    options
	out        io.Writer
	admin      client.Client
	pods       cache.Cache
	podServers *servers.Set // on podPort
	others     *servers.Set // on otherPort
	log        *load.Log
	file       *os.File
	changed    chan struct{} // a pod has changed; a send never blocks
}

func newHarness(ctx context.Context, s *stage.Stage, o options, out io.Writer) (*harness, error) {
	admin, err := client.New(s.Config(), client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	// Only pods of measured workloads, in any namespace, get a server.
	pods, err := cache.New(s.Config(), cache.Options{DefaultLabelSelector: labels.SelectorFromSet(labels.Set{"app": "web"})})
	if err != nil {
		return nil, fmt.Errorf("making a cache: %w", err)
	}
	file, err := os.Create(filepath.Join(s.Dir(), "outcomes.tsv"))
	if err != nil {
		return nil, fmt.Errorf("making the file of outcomes: %w", err)
	}
	w := &harness{
		stage: s, options: o, out: out, admin: admin, pods: pods, podServers: servers.New(podPort, drainPort, logr.Discard()),
		others: servers.New(otherPort, 0, logr.Discard()), log: load.NewLog(file), file: file, changed: make(chan struct{}, 1),
	}
	go pods.Start(ctx) //nolint:errcheck // it ends with ctx; a failing watch shows as a timeout of a step
	informer, err := pods.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watching pods: %w", err), w.close())
	}
	for _, handler := range []toolscache.ResourceEventHandler{w.podServers.Handler(), w.others.Handler(), w.notifier()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, errors.Join(fmt.Errorf("watching pods: %w", err), w.close())
		}
	}
	return w, nil
}

func (w *harness) notifier() toolscache.ResourceEventHandler {
	say := func() {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { say() }, UpdateFunc: func(any, any) { say() }, DeleteFunc: func(any) { say() },
	}
}

func (w *harness) close() error {
	w.podServers.Close()
	w.others.Close()
	return errors.Join(w.podServers.Err(), w.others.Err(), w.log.Close(), w.file.Close())
}

// podsOf returns the pods of a namespace, including terminating pods, from the cache.
func (w *harness) podsOf(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := w.pods.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return list.Items, nil
}

// await polls until a condition holds. It gives up when the observation has not changed for
// stepPatience, or after stepBound; the error ends with the last observation.
func (w *harness) await(ctx context.Context, what string, holds func(context.Context) (bool, string, error)) error {
	ctx, stop := context.WithTimeoutCause(ctx, stepBound, fmt.Errorf("%w after %s", stage.ErrTimeout, stepBound))
	defer stop()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	before, moved := "", time.Now()
	for {
		ok, seen, err := holds(ctx)
		if ok {
			return nil
		}
		if err != nil {
			seen = err.Error()
		}
		if seen != before {
			before, moved = seen, time.Now()
		}
		if time.Since(moved) > stepPatience {
			return fmt.Errorf("waiting until %s: %w, no change for %s: %s (log of the manager: %s)", what, stage.ErrTimeout, stepPatience, seen, w.stage.ManagerLog())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w: %s (log of the manager: %s)", what, context.Cause(ctx), seen, w.stage.ManagerLog())
		case <-ticker.C:
		}
	}
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil && pod.Status.PodIP != ""
		}
	}
	return false
}
