// Package confirm shows which cluster a verb is about to change, and lets the user decide.
package confirm

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// ErrDeclined is the error of a verb that the user declined.
var ErrDeclined = errors.New("nothing was changed: confirm with y, or add --yes")

// Change prints the cluster and the context of the kubeconfig, and the change that is about to be made there.
// It reads the consent of the user from standard input, unless yes is set or the API server is on this
// machine.
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
	if yes || isLocal(config.Host) {
		return nil
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

// isLocal reports whether a server is at a loopback address.
func isLocal(host string) bool {
	address, err := url.Parse(host)
	if err != nil {
		return false
	}
	name := address.Hostname()
	return name == "localhost" || net.ParseIP(name).IsLoopback()
}
