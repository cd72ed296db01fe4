// Package install implements kubectl podops install.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/confirm"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/installation"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/provenance"
	"github.com/podops-dev/podops/pkg/runtime/kubeversion"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// fieldOwner owns the fields of the manifests.
	fieldOwner = "kubectl-podops"

	// poll is the interval at which webhooks are called until they answer.
	poll = time.Second

	// maxRefusal bounds the text of an API server in a line of progress.
	maxRefusal = 300
)

// options are the flags of the verb.
type options struct {
	managerNamespace, image string
	provenance, key         string
	components              []string
	crdsOnly                bool
	dryRun, yes, wait       bool
	timeout                 time.Duration
}

// Command returns the verb install.
func Command(env *command.Environment) *cobra.Command {
	var flags options
	verb := &cobra.Command{
		Use:   "install",
		Short: "Install PodOps into a cluster, or update it",
		Long: `Install PodOps into a cluster, or update it to the version of this plugin.

It applies the manifests of config/default, which the plugin contains, on the server side,
and waits until the webhooks answer. Fields of these objects that were changed are set back.
In an update the webhook configurations follow when all replicas are of the new version: replicas
of the old version do not serve webhooks that the new version adds.
It changes nothing in a cluster whose Kubernetes version PodOps does not support.`,
		Example: `  # Install with an image
  kubectl podops install --image registry.example/podops-manager:v1

  # With rights for adapters, and metrics for prometheus-operator
  kubectl podops install --image registry.example/podops-manager:v1 --components adapters,service-monitor

  # Verify that the image is in a release that is signed with a key
  kubectl podops install --provenance provenance.intoto.json --key podops.pub

  # Print the manifests
  kubectl podops install --dry-run > podops.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), env, flags) },
	}
	set := verb.Flags()
	set.StringVar(&flags.managerNamespace, "podops-namespace", cluster.DefaultManagerNamespace, "namespace of the manager")
	set.StringVar(&flags.image, "image", "",
		"image of the manager; by default the image of the release of this plugin, or podops-manager:dev in a plugin without a release")
	set.StringSliceVar(&flags.components, "components", nil, "components of config/components that are switched on")
	set.StringVar(&flags.provenance, "provenance", "",
		"`file` of the signed provenance of a release: the image has to be in that release, by its digest; needs --key")
	set.StringVar(&flags.key, "key", "", "`file` of the public key that --provenance is signed with")
	set.BoolVar(&flags.crdsOnly, "crds-only", false, "apply the CustomResourceDefinitions only, and wait for no webhooks")
	set.BoolVar(&flags.dryRun, "dry-run", false, "print the manifests, and change nothing")
	set.BoolVarP(&flags.yes, "yes", "y", false, "do not wait for a confirmation")
	set.BoolVar(&flags.wait, "wait", true, "wait until the webhooks answer")
	set.DurationVar(&flags.timeout, "timeout", 5*time.Minute, "timeout of the whole command")
	return env.Cluster(verb)
}

func run(ctx context.Context, env *command.Environment, flags options) error {
	objects, err := installation.Build(installation.Options{
		Namespace: flags.managerNamespace, Image: flags.image, Components: flags.components,
	})
	if err != nil {
		return err
	}
	if err := verify(objects, flags); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if flags.crdsOnly {
		objects, flags.wait = installation.CRDs(objects), false
	}
	if flags.dryRun {
		return write(env.Out, objects)
	}
	if err := confirm.Change(env, fmt.Sprintf("apply %d objects of PodOps", len(objects)), flags.yes); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, flags.timeout)
	defer stop()
	c, err := connect(ctx, env)
	if err != nil {
		return err
	}
	if err := requireKinds(c, objects); err != nil {
		return err
	}
	updates, err := requireService(ctx, c, objects)
	if err != nil {
		return err
	}
	replicas := func(context.Context, *unstructured.Unstructured) error { return nil }
	if updates && flags.wait {
		replicas = func(ctx context.Context, deployment *unstructured.Unstructured) error {
			return awaitReplicas(ctx, c, deployment, env.Out)
		}
	}
	if err := apply(ctx, c, objects, replicas, env.Out); err != nil {
		return err
	}
	if !flags.wait {
		return nil
	}
	return awaitWebhooks(ctx, c, env.Out)
}

// verify returns an error unless the image of the manager among objects is in the release whose provenance the
// flags name. Without these flags it verifies nothing.
func verify(objects []*unstructured.Unstructured, flags options) error {
	if (flags.provenance == "") != (flags.key == "") {
		return errors.New("--provenance and --key belong together: the key is what the provenance is verified with")
	}
	if flags.key == "" {
		return nil
	}
	signed, err := os.ReadFile(flags.provenance)
	if err != nil {
		return fmt.Errorf("reading --provenance: %w", err)
	}
	key, err := os.ReadFile(flags.key)
	if err != nil {
		return fmt.Errorf("reading --key: %w", err)
	}
	statement, err := provenance.Verify(signed, key)
	if err != nil {
		return fmt.Errorf("verifying %s with %s: %w", flags.provenance, flags.key, err)
	}
	image, err := installation.ManagerImage(objects)
	if err != nil {
		return err
	}
	return statement.HasImage(image)
}

// connect returns a client of a cluster whose version of Kubernetes PodOps supports.
func connect(ctx context.Context, env *command.Environment) (client.Client, error) {
	kubernetes, err := env.Kubernetes(ctx)
	if err != nil {
		return nil, err
	}
	if err := kubeversion.Check(kubernetes); err != nil {
		return nil, err
	}
	return env.Client(ctx)
}

// write writes objects as YAML documents.
func write(out io.Writer, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		encoded, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", encoded); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	return nil
}

// requireKinds fails in a cluster that does not have the kind of an object, such as the ServiceMonitor of a component.
func requireKinds(c client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		kind := object.GroupVersionKind()
		_, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case meta.IsNoMatchError(err):
			return fmt.Errorf("nothing was changed: this cluster does not have the kind %s of %s, which a component needs: "+
				"install its operator, or leave the component out", kind.Kind, kind.GroupVersion())
		case err != nil:
			return fmt.Errorf("reading the kinds of the cluster: %w", err)
		}
	}
	return nil
}

// requireService fails in a cluster whose webhooks are at an address: a manager outside of the cluster owns
// them, and the API server rejects a Service beside an address. It reports whether all
// webhook configurations exist: while any of them is missing, no replica is ready.
func requireService(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) (installed bool, err error) {
	installed = true
	for _, object := range objects {
		var configs []admissionregistrationv1.WebhookClientConfig
		var err error
		switch object.GetKind() {
		case "MutatingWebhookConfiguration":
			var found admissionregistrationv1.MutatingWebhookConfiguration
			err = c.Get(ctx, client.ObjectKeyFromObject(object), &found)
			for _, webhook := range found.Webhooks {
				configs = append(configs, webhook.ClientConfig)
			}
		case "ValidatingWebhookConfiguration":
			var found admissionregistrationv1.ValidatingWebhookConfiguration
			err = c.Get(ctx, client.ObjectKeyFromObject(object), &found)
			for _, webhook := range found.Webhooks {
				configs = append(configs, webhook.ClientConfig)
			}
		}
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading %s: %w", object.GetName(), err)
		}
		installed = installed && !apierrors.IsNotFound(err)
		for _, config := range configs {
			if config.URL != nil {
				return false, errors.New("this cluster has the webhooks of a manager outside of it (make cluster-up, config/local): " +
					"stop that manager, and run `kubectl podops uninstall --keep-manifests` first")
			}
		}
	}
	return installed, nil
}

// apply applies objects in their order, on the server side. It calls replicas with the Deployment before it applies the
// first webhook configuration.
func apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured,
	replicas func(context.Context, *unstructured.Unstructured) error, out io.Writer,
) error {
	var deployment *unstructured.Unstructured
	for _, object := range objects {
		switch object.GetKind() {
		case "Deployment":
			deployment = object
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			if deployment == nil {
				break
			}
			if err := replicas(ctx, deployment); err != nil {
				return err
			}
			deployment = nil
		}
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldOwner), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if _, err := fmt.Fprintf(out, "applied %s %s\n", object.GetKind(), object.GetName()); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	return nil
}

// awaitWebhooks waits until a dry run that the webhooks review succeeds, and prints each new reason for which
// it does not.
func awaitWebhooks(ctx context.Context, c client.Client, out io.Writer) error {
	if _, err := fmt.Fprintln(out, "waiting until the webhooks answer"); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	last := ""
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		err := c.Create(ctx, installation.Probe(metav1.NamespaceDefault), client.DryRunAll)
		if err == nil {
			return true, nil
		}
		if reason := text.Line(err.Error(), maxRefusal); reason != last {
			last = reason
			_, _ = fmt.Fprintf(out, "  not yet: %s\n", reason)
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("the webhooks do not answer, `kubectl podops doctor` has details: %s: %w", last, err)
	}
	_, err = fmt.Fprintln(out, "PodOps is installed: the webhooks answer")
	return err
}
