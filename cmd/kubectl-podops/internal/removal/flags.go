package removal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// Flags are the flags of the verbs that remove pods.
type Flags struct {
	Timeout     time.Duration
	GracePeriod int64
}

// Add adds the flags to a verb.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.DurationVar(&f.Timeout, "timeout", 0, "time after which to give up, and to withdraw the requests that are left; 0 for none")
	flags.Int64Var(&f.GracePeriod, "grace-period", -1, "seconds that each pod gets to terminate; -1 for its own")
}

// Validate returns an error for flags that make no sense.
func (f *Flags) Validate() error {
	switch {
	case f.Timeout < 0:
		return fmt.Errorf("--timeout %s: want 0 or more", f.Timeout)
	case f.GracePeriod == 0:
		return errors.New("--grace-period 0: a delete without grace passes every rule; want 1 or more, or use kubectl delete --force --grace-period=0")
	case f.GracePeriod < -1:
		return fmt.Errorf("--grace-period %d: want 1 or more, or -1", f.GracePeriod)
	default:
		return nil
	}
}

// Run removes pods, by evictions or by deletes, until all are gone, the time has passed, or the context ends.
func (f *Flags) Run(ctx context.Context, env *command.Environment, c kubernetes.Interface, evict bool, pods []*corev1.Pod) error {
	method := Method{Evict: evict}
	if f.GracePeriod > 0 {
		method.GracePeriodSeconds = &f.GracePeriod
	}
	if f.Timeout > 0 {
		bounded, cancel := context.WithTimeoutCause(ctx, f.Timeout, ErrTimeout)
		defer cancel()
		ctx = bounded
	}
	remover := Remover{API: NewClient(c, method), Out: env.Out, Messages: env.ErrOut, Now: env.Now}
	return remover.Run(ctx, pods)
}
