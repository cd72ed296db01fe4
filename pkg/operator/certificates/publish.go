package certificates

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Publication is what the clients of a server need.
type Publication struct {
	// Bundle is the PEM of the CAs that they must trust.
	Bundle []byte

	// Token ends the paths of the webhooks that have one.
	Token string

	// Leads is true on the replica that writes the address of the server.
	Leads bool
}

// Publisher writes a Publication where the clients of a server read it.
type Publisher interface {
	// Publish writes what differs. It returns the names of objects that do not exist yet. An error of one object
	// does not stop the others. A conflict is repeated soon.
	Publish(ctx context.Context, publication Publication) (missing []string, err error)

	// Watches returns the objects whose changes lead to another publication.
	Watches() []Watched
}

// Watched are objects of a kind.
type Watched struct {
	Object client.Object

	// Changes are the changes that count.
	Changes predicate.Predicate
}

// named returns a predicate for the object of a name.
func named(name string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetName() == name })
}

// configuration is a webhook configuration of PodOps.
type configuration struct {
	object client.Object

	// clients returns the client configuration of every webhook in the object, once the
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

// configurationPublisher publishes to both webhook configurations of PodOps.
type configurationPublisher struct {
	client  client.Client
	address Address
}

// Watches implements Publisher.
func (p configurationPublisher) Watches() []Watched {
	var watched []Watched
	for _, c := range configurations() {
		watched = append(watched, Watched{c.object, named(c.object.GetName())})
	}
	return watched
}

// Publish writes the bundle, and for the leader the address and the token, into both webhook
// configurations where they differ. It returns the names of missing configurations. An error
// of one configuration does not stop the other.
func (p configurationPublisher) Publish(ctx context.Context, publication Publication) (missing []string, err error) {
	var errs []error
	for _, c := range configurations() {
		name := c.object.GetName()
		err := p.client.Get(ctx, client.ObjectKeyFromObject(c.object), c.object)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			errs = append(errs, fmt.Errorf("reading %s: %w", name, err))
		default:
			if err := p.publishTo(ctx, c, publication); err != nil {
				errs = append(errs, fmt.Errorf("updating %s: %w", name, err))
			}
		}
	}
	return missing, errors.Join(errs...)
}

// publishTo publishes to one configuration that was read.
func (p configurationPublisher) publishTo(ctx context.Context, c configuration, publication Publication) error {
	before := c.object.DeepCopyObject().(client.Object)
	for _, config := range c.clients() {
		config.CABundle = publication.Bundle
		if !publication.Leads {
			continue
		}
		if err := p.address.point(config); err != nil {
			return err
		}
		seal(config, publication.Token)
	}
	if equality.Semantic.DeepEqual(before, c.object) {
		return nil
	}
	// Webhooks are merged by name, so concurrent changes of other fields stay. The lock
	// keeps a replica with an old cache from overwriting a newer bundle.
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	return p.client.Patch(ctx, c.object, patch)
}
