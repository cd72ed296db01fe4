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

	"github.com/podops-dev/podops/test/traffic/front"
	"github.com/podops-dev/podops/test/traffic/load"
	"github.com/podops-dev/podops/test/traffic/servers"
)

const (
	// podPort is the port of the server of every pod.
	podPort = 8090

	// Requests of each of the two kinds, with kept connections and without.
	loadRate    = 100
	loadWorkers = 16

	// loadBefore and loadAfter are the times for which requests are sent before and after the rollout.
	loadBefore = time.Second
	loadAfter  = time.Second
)

// balancedService names the load balancer that the pods are behind.
const balancedService = `apiVersion: v1
kind: Service
metadata:
  name: web
  labels:
    kusionstack.io/control: "true"
  annotations:
    podops.dev/haproxy-runtime: "unix:%s"
    podops.dev/haproxy-backend: "%s"
    podops.dev/haproxy-port: "%d"
spec:
  selector:
    app: web
  ports:
  - port: 80
    targetPort: %d
`

// balancer is a load balancer with HAProxy's Runtime API.
type balancer interface {
	Address() string
	Socket() string
	Backend() string
	Close() error
}

// traffic has real servers on the addresses of the pods, a load balancer in front of them, and
// requests that are counted one by one.
type traffic struct {
	fleet    *servers.Set
	balancer balancer
	name     string
	load     *load.Load
}

// openTraffic starts the load balancer: HAProxy where it is installed, else a load
// balancer in this process with the same Runtime API.
func openTraffic(ctx context.Context, dir string) (*traffic, error) {
	dir = filepath.Join(dir, "front")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making %s: %w", dir, err)
	}
	t := &traffic{fleet: servers.New(podPort, 0, logr.Discard()), name: "HAProxy"}
	_, err := front.Find()
	if err == nil {
		t.balancer, err = front.StartHAProxy(ctx, front.Options{Dir: dir})
	} else {
		t.name = "an embedded load balancer (HAProxy is not installed)"
		t.balancer, err = front.StartEmbedded(front.Options{Dir: dir})
	}
	if err != nil {
		return nil, fmt.Errorf("starting the load balancer: %w", err)
	}
	return t, nil
}

// service writes the Service that names the load balancer into a file of the folder.
func (t *traffic) service(dir string) (string, error) {
	path := filepath.Join(dir, "service.yaml")
	text := fmt.Sprintf(balancedService, t.balancer.Socket(), t.balancer.Backend(), podPort, podPort)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("writing the Service: %w", err)
	}
	return path, nil
}

// start sends requests until stop.
func (t *traffic) start() (err error) {
	t.load, err = load.Start(load.Options{
		Address: t.balancer.Address(), Paths: []string{"/", "/?work=5ms", "/?work=50ms"}, Workers: loadWorkers, Rate: loadRate,
	})
	if err != nil {
		return fmt.Errorf("starting the load: %w", err)
	}
	return nil
}

// counts returns the number of requests that were sent, and the number of them that failed.
func (t *traffic) counts() (requests, failed int) {
	if t.load == nil {
		return 0, 0
	}
	report := t.load.Report()
	return report.Requests, report.Failed
}

// stop ends the load and returns the outcome of the requests.
func (t *traffic) stop() (*load.Report, error) { return t.load.Stop(), t.fleet.Err() }

func (t *traffic) close() error {
	if t.load != nil {
		t.load.Stop()
	}
	t.fleet.Close()
	return errors.Join(t.fleet.Err(), t.balancer.Close())
}

// printRequests prints the number of requests, and the first failures.
func printRequests(out io.Writer, report *load.Report) {
	fmt.Fprintf(out, "requests: %d failed: %d\n", report.Requests, report.Failed)
	for _, failure := range report.Failures {
		fmt.Fprintf(out, "  %+v\n", failure)
	}
}
