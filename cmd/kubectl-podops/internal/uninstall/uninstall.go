// Package uninstall implements kubectl podops uninstall.
package uninstall

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/confirm"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/installation"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/podrelease"
	"github.com/podops-dev/podops/pkg/adapters/demo"
	"github.com/podops-dev/podops/pkg/adapters/haproxy"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// poll is the interval at which the deletion of an object is checked.
const poll = 500 * time.Millisecond

// maxFailure bounds the text of an API server in an error.
const maxFailure = 300

// options are the flags of the verb.
type options struct {
	managerNamespace string
	adapters         []string
	allFinalizers    bool
	keepManifests    bool
	crdsOnly         bool
	yes              bool
	timeout          time.Duration
}

// Command returns the verb uninstall.
func Command(env *command.Environment) *cobra.Command {
	var flags options
	verb := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove PodOps from a cluster, and leave every pod in service",
		Long: `Remove PodOps from a cluster, and leave every pod in service.

It removes webhooks and admission policies, stops the manager, ends every lifecycle, opens
every readiness gate, removes the finalizers of the adapters inside of the manager, hands
kept scale-downs back to Kubernetes, and deletes everything that install applies. With the
CustomResourceDefinitions every PodTransitionRule, PodTransitionPolicy, PodOperation and
TrafficAdapter is deleted: save them first.

It needs no running manager, and can be run again: a second run continues where the first
stopped. A manager outside of the cluster has to be stopped by hand first: while it renews
its Lease, the command fails and changes nothing.`,
		Example: `  # Everything
  kubectl podops uninstall

  # Release the pods, and keep roles, CustomResourceDefinitions and their objects
  kubectl podops uninstall --keep-manifests

  # With the adapter slb, whose program has stopped
  kubectl podops uninstall --adapters slb`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), env, flags) },
	}
	set := verb.Flags()
	set.StringVar(&flags.managerNamespace, "podops-namespace", cluster.DefaultManagerNamespace, "namespace of the manager")
	set.StringSliceVar(&flags.adapters, "adapters", nil, "TrafficAdapters whose finalizers are removed, too; their programs must have stopped")
	set.BoolVar(&flags.allFinalizers, "all-finalizers", false, "remove every protection finalizer, including finalizers of adapters in other programs")
	set.BoolVar(&flags.keepManifests, "keep-manifests", false, "release the pods only: keep the Deployment (with 0 replicas), roles and CustomResourceDefinitions")
	set.BoolVar(&flags.crdsOnly, "crds-only", false, "delete the CustomResourceDefinitions and their objects only, and release no pod")
	verb.MarkFlagsMutuallyExclusive("crds-only", "keep-manifests")
	set.BoolVarP(&flags.yes, "yes", "y", false, "do not wait for a confirmation")
	set.DurationVar(&flags.timeout, "timeout", 5*time.Minute, "timeout of the whole command")
	return env.Cluster(verb)
}

func run(ctx context.Context, env *command.Environment, flags options) error {
	what := "remove PodOps and its CustomResourceDefinitions, with every PodTransitionRule"
	switch {
	case flags.keepManifests:
		what = "release every pod from PodOps, and remove its webhooks"
	case flags.crdsOnly:
		what = "remove the CustomResourceDefinitions of PodOps, with every PodTransitionRule"
	}
	if err := confirm.Change(env, what, flags.yes); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, flags.timeout)
	defer stop()
	c, err := env.Client(ctx)
	if err != nil {
		return err
	}
	objects, err := manifests(flags.managerNamespace)
	if err != nil {
		return err
	}
	if flags.crdsOnly {
		return remove(ctx, c, installation.CRDs(objects), env.Out)
	}
	if err := releasePods(ctx, c, flags, env.Out); err != nil {
		return fmt.Errorf("releasing pods: %w", err)
	}
	if flags.keepManifests {
		return nil
	}
	if err := remove(ctx, c, objects, env.Out); err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Out, "only labels and readiness gates of pod templates are left of PodOps")
	return err
}

// manifests returns everything that install applies, with any components.
func manifests(namespace string) ([]*unstructured.Unstructured, error) {
	components, err := installation.Components()
	if err != nil {
		return nil, err
	}
	return installation.Build(installation.Options{Namespace: namespace, Components: components})
}

// releasePods ends every lifecycle, see package podrelease, and prints its progress.
func releasePods(ctx context.Context, c client.Client, flags options, out io.Writer) error {
	step := ""
	report, err := podrelease.Run(ctx, c, podrelease.Options{
		Namespace:     flags.managerNamespace,
		Controllers:   []string{demo.ControllerName, haproxy.ControllerName},
		Adapters:      flags.adapters,
		AllFinalizers: flags.allFinalizers,
		Progress: func(r podrelease.Report) {
			if r.Step != step {
				_, _ = fmt.Fprintln(out, r.Step)
				step = r.Step
			}
			if r.Pods > 0 && r.Step == podrelease.StepPods {
				_, _ = fmt.Fprintf(out, "  %d pods seen, %d released\n", r.Pods, r.Released)
			}
		},
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "released %d pods and %d ReplicaSets, removed %d protection finalizers and %d clean finalizers of Services\n",
		report.Released, report.ReplicaSets, report.Finalizers, report.Services); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	for _, left := range report.Left {
		if _, err := fmt.Fprintf(out, "not released: pod %s\n", left); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	if len(report.Adapters) > 0 && !flags.allFinalizers {
		_, err = fmt.Fprintf(out, "the finalizers of %s stay: their programs remove them; --adapters removes them when these programs have stopped\n",
			strings.Join(report.Adapters, ", "))
	}
	return err
}

// remove deletes objects in the opposite order of their creation, and waits until all are deleted.
func remove(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, out io.Writer) error {
	if _, err := fmt.Fprintln(out, "deleting the manifests"); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	deleted := 0
	for _, object := range slices.Backward(objects) {
		err := c.Delete(ctx, object, client.PropagationPolicy("Background"))
		switch {
		case err == nil:
			deleted++
		case isGone(err):
		default:
			return fmt.Errorf("deleting %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	if err := awaitDeleted(ctx, c, objects); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "deleted %d objects\n", deleted)
	return err
}

// awaitDeleted waits until no object exists.
func awaitDeleted(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	var remaining string
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		for _, object := range objects {
			found := object.DeepCopy()
			err := c.Get(ctx, client.ObjectKeyFromObject(object), found)
			if isGone(err) {
				continue
			}
			remaining = object.GetKind() + " " + object.GetName()
			if err != nil {
				return false, err
			}
			if message := failure(found); message != "" {
				remaining += " (" + message + ")"
				return false, wake(ctx, c, found)
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until %s is deleted: %w", remaining, err)
	}
	return nil
}

// wakeKey is an annotation of a CustomResourceDefinition that is being deleted.
const wakeKey = "podops.kusionstack.io/delete-again-after"

// failure returns why the API server could not delete the objects of a CustomResourceDefinition; empty if it did not fail.
func failure(definition *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions") // other kinds have others
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		if condition["type"] == "Terminating" && condition["reason"] == "InstanceDeletionFailed" {
			message, _ := condition["message"].(string)
			return text.Line(message, maxFailure)
		}
	}
	return ""
}

// wake makes the API server delete the objects of a CustomResourceDefinition again after a failure. It fails to list the
// objects of a definition that it has not served so far, and its second attempt, milliseconds later, may conflict with
// the status that the first wrote: the third follows minutes later, unless the definition changes outside of its status.
func wake(ctx context.Context, c client.Client, definition *unstructured.Unstructured) error {
	before := definition.DeepCopy()
	annotations := definition.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[wakeKey] = definition.GetResourceVersion() // differs after each failure
	definition.SetAnnotations(annotations)
	err := c.Patch(ctx, definition, client.MergeFrom(before))
	if err != nil && !isGone(err) {
		return fmt.Errorf("changing %s %s: %w", definition.GetKind(), definition.GetName(), err)
	}
	return nil
}

// isGone reports whether an object, or its kind, does not exist.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}
