// Package confirm shows which cluster a verb is about to change, and lets the user decide.
package confirm

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// localContext is the context of the kubeconfigs that the local control plane writes.
const localContext = "podops-local"

var (
	// ErrDeclined is the error of a verb that the user declined.
	ErrDeclined = errors.New("nothing was changed: confirm with y, or add --yes")

	// ErrNoTerminal is the error of a verb that can read no consent.
	ErrNoTerminal = errors.New("nothing was changed: standard input is no terminal to confirm on; add --yes, or YES=1 for make")
)

// Change prints the cluster and the context of the kubeconfig, and the change that is about to be made there.
// It reads the consent of the user from the terminal, unless yes is set or the cluster is the local control
// plane.
func Change(env *command.Environment, what string, yes bool) error {
	config, err := env.REST()
	if err != nil {
		return err
	}
	context := ""
	if raw, err := env.Config.ToRawKubeConfigLoader().RawConfig(); err == nil {
		context = raw.CurrentContext
	}
	if chosen := env.Config.Context; chosen != nil && *chosen != "" {
		context = *chosen
	}
	if _, err := fmt.Fprintf(env.ErrOut, "cluster %s, context %q: %s\n", config.Host, context, what); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	if yes || isLocal(config, context) {
		return nil
	}
	if !env.Interactive() {
		return ErrNoTerminal
	}
	if _, err := fmt.Fprint(env.ErrOut, "Continue? [y/N] "); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	// Without a line there is no consent.
	answer, _ := bufio.NewReader(env.In).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return ErrDeclined
	}
}

// isLocal reports whether a cluster is the local control plane: its API server is at a loopback address, and
// its context has the name that `make cluster-up` writes. Without that name, the address may be the end of a
// tunnel to any cluster.
func isLocal(config *rest.Config, context string) bool {
	address, err := url.Parse(config.Host)
	if err != nil || context != localContext || config.Proxy != nil {
		return false
	}
	name := address.Hostname()
	return name == "localhost" || net.ParseIP(name).IsLoopback()
}
