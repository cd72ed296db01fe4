package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/podops-dev/podops/test/approvals"
)

// approvalRule calls the desk for every pod. Its name in status is "person/approval".
const approvalRule = `apiVersion: apps.kusionstack.io/v1alpha1
kind: PodTransitionRule
metadata:
  name: person
spec:
  selector:
    matchLabels:
      app: web
  rules:
  # Every pod waits until a person approves it.
  - name: approval
    webhook:
      clientConfig:
        url: %s
        poll:
          url: %s
          intervalSeconds: 1
          timeoutSeconds: 3600
`

// desk is the approval service of the demo, with a page on which a person approves.
type desk struct {
	service *approvals.Service
	server  *approvals.Server
}

func openDesk() (*desk, error) {
	service := approvals.New(nil)
	server, err := approvals.Serve(service, approvals.Options{})
	if err != nil {
		return nil, fmt.Errorf("opening the approval service: %w", err)
	}
	return &desk{service: service, server: server}, nil
}

// rule writes the rule that calls the desk into a file of the folder.
func (d *desk) rule(dir string) (string, error) {
	path := filepath.Join(dir, "approval-rule.yaml")
	text := fmt.Sprintf(approvalRule, d.server.URL("/manual"), d.server.URL("/result"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("writing the approval rule: %w", err)
	}
	return path, nil
}

// approveAll approves every pod that waits, in place of a person, until ctx ends.
func (d *desk) approveAll(ctx context.Context) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, _ = d.service.Decide(namespace, "", true) // Usually no pod waits at the moment.
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (d *desk) close(ctx context.Context) error { return d.server.Close(ctx) }

var errNotApproved = errors.New("pod was replaced without an approval")

// checkApproved returns an error unless every replaced pod was approved, by UID.
func (d *desk) checkApproved(rolled []string) error {
	approved := map[string]bool{}
	for _, approval := range d.service.Approvals(namespace) {
		approved[approval.Pod.UID] = true
	}
	for _, uid := range rolled {
		if !approved[uid] {
			return fmt.Errorf("%w: %s", errNotApproved, uid)
		}
	}
	return nil
}
