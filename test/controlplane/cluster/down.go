package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/podops-dev/podops/test/controlplane/filelock"
)

// Down ends the cluster in dir, returns when its last process has ended, and removes its
// state folder and its kubeconfig. With keep, the folder stays for its logs and the audit
// log; Up still starts from nothing. A missing cluster is no error.
func Down(ctx context.Context, dir string, keep bool, out io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", dir, err)
	}
	unlock, err := filelock.Lock(ctx, dir+".lock", func() {
		fmt.Fprintln(out, "waiting for another up or down of this cluster")
	})
	if err != nil {
		return err
	}
	defer unlock()
	if !keep {
		return remove(dir, out)
	}
	if endSupervisor(dir) {
		fmt.Fprintf(out, "ended the cluster in %s; its files are kept\n", dir)
	}
	return nil
}

// remove ends the cluster in dir, if any, and removes it. It rejects a folder with other
// content.
func remove(dir string, out io.Writer) error {
	c, err := readConfig(dir)
	if errors.Is(err, errNoCluster) {
		return refuseForeign(dir)
	}
	if err != nil {
		return err
	}
	ended := endSupervisor(dir)
	if err := c.removeKubeconfig(); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the state folder: %w", err)
	}
	if ended {
		fmt.Fprintf(out, "ended the cluster in %s\n", dir)
	}
	return nil
}

// refuseForeign fails when dir has content that is not a cluster's.
func refuseForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the state folder: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty and holds no cluster: choose another folder", dir)
	}
	return nil
}

// removeKubeconfig removes the kubeconfig that Up has written, unless it was replaced.
func (c config) removeKubeconfig() error {
	published, err := os.ReadFile(c.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	own, err := os.ReadFile(c.file("kubeconfigs", "admin"))
	if err != nil {
		return nil //nolint:nilerr // without our own identity it cannot be compared, so it stays
	}
	if !bytes.Equal(own, published) {
		return nil
	}
	if err := os.Remove(c.Kubeconfig); err != nil {
		return fmt.Errorf("removing the kubeconfig: %w", err)
	}
	return nil
}

// endSupervisor ends the supervisor in dir, or the known supervisor, which may not have
// reported yet, and waits until it and every component have ended. It reports whether
// there was a process to end.
func endSupervisor(dir string, known ...process) bool {
	processes := slices.Clone(known)
	if r, err := readReport(dir); err == nil { // without a report no component has started
		known = append(known, r.Supervisor)
		processes = append(processes, r.Supervisor)
		for _, c := range r.Components {
			processes = append(processes, c.Process)
		}
	}
	if !anyAlive(processes) {
		return false
	}
	for _, supervisor := range known {
		supervisor.signal(syscall.SIGTERM)
	}
	// The groups of components are stopped one after another.
	kill := time.After(4 * stopTimeout)
	ticker := time.NewTicker(pollInterval / 4)
	defer ticker.Stop()
	for anyAlive(processes) {
		select {
		case <-kill:
			for _, p := range processes {
				p.signal(syscall.SIGKILL)
			}
		case <-ticker.C:
		}
	}
	return true
}

func anyAlive(processes []process) bool {
	for _, p := range processes {
		if p.alive() {
			return true
		}
	}
	return false
}
