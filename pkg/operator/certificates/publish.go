package certificates

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configuration is a webhook configuration of PodOps.
type configuration struct {
	object client.Object

	// clients returns the client configuration of every webhook of the object, once the
	// object was read.
	clients func() []*admissionregistrationv1.WebhookClientConfig
}

// configurations returns both of them, to be read. The objects have their names set.
func configurations() []configuration {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	mutating.Name = MutatingConfigurationName
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	validating.Name = ValidatingConfigurationName
	return []configuration{
		{mutating, func() []*admissionregistrationv1.WebhookClientConfig {
			var configs []*admissionregistrationv1.WebhookClientConfig
			for i := range mutating.Webhooks {
				configs = append(configs, &mutating.Webhooks[i].ClientConfig)
			}
			return configs
		}},
		{validating, func() []*admissionregistrationv1.WebhookClientConfig {
			var configs []*admissionregistrationv1.WebhookClientConfig
			for i := range validating.Webhooks {
				configs = append(configs, &validating.Webhooks[i].ClientConfig)
			}
			return configs
		}},
	}
}

// publish writes the bundle, and for the leader the address and the token, into both webhook
// configurations where they differ. It returns the names of missing configurations. An error
// of one configuration does not stop the other.
func (r *Reconciler) publish(ctx context.Context, bundle []byte, token string) (missing []string, err error) {
	var errs []error
	for _, c := range configurations() {
		name := c.object.GetName()
		err := r.client.Get(ctx, client.ObjectKeyFromObject(c.object), c.object)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			errs = append(errs, fmt.Errorf("reading %s: %w", name, err))
		default:
			if err := r.publishTo(ctx, c, bundle, token); err != nil {
				errs = append(errs, fmt.Errorf("updating %s: %w", name, err))
			}
		}
	}
	return missing, errors.Join(errs...)
}

// publishTo publishes to one configuration that was read.
func (r *Reconciler) publishTo(ctx context.Context, c configuration, bundle []byte, token string) error {
	before := c.object.DeepCopyObject().(client.Object)
	for _, config := range c.clients() {
		config.CABundle = bundle
		if !r.leads() {
			continue
		}
		if err := r.address.point(config); err != nil {
			return err
		}
		seal(config, token)
	}
	if equality.Semantic.DeepEqual(before, c.object) {
		return nil
	}
	// Webhooks are merged by name, so concurrent changes of other fields stay. The lock
	// keeps a replica with an old cache from overwriting a newer bundle.
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	return r.client.Patch(ctx, c.object, patch)
}
