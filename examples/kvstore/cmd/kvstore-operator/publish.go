package main

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/operator/certificates"
)

// rulePublisher publishes the CAs of the hook to the rules that call it. The cache has only the PodTransitionRules with
// the label of the objects of clusters.
type rulePublisher struct {
	client client.Client
	url    string // of the hook
}

// Watches implements certificates.Publisher.
func (p rulePublisher) Watches() []certificates.Watched {
	return []certificates.Watched{{Object: &appsv1alpha1.PodTransitionRule{}, Changes: predicate.GenerationChangedPredicate{}}}
}

// Publish implements certificates.Publisher. No rule has to exist.
func (p rulePublisher) Publish(ctx context.Context, publication certificates.Publication) ([]string, error) {
	var rules appsv1alpha1.PodTransitionRuleList
	if err := p.client.List(ctx, &rules); err != nil {
		return nil, fmt.Errorf("listing PodTransitionRules: %w", err)
	}
	var errs []error
	for i := range rules.Items {
		before := &rules.Items[i]
		changed := before.DeepCopy()
		if !trust(changed, p.url, string(publication.Bundle)) {
			continue
		}
		err := p.client.Patch(ctx, changed, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("publishing to PodTransitionRule %s: %w", client.ObjectKeyFromObject(before), err))
		}
	}
	return nil, errors.Join(errs...)
}

// trust sets the caBundle of every call to a url, and reports whether that changed the object.
func trust(object *appsv1alpha1.PodTransitionRule, url, bundle string) (changed bool) {
	for i := range object.Spec.Rules {
		webhook := object.Spec.Rules[i].Webhook
		if webhook == nil || webhook.ClientConfig.URL != url || webhook.ClientConfig.CABundle == bundle {
			continue
		}
		webhook.ClientConfig.CABundle, changed = bundle, true
	}
	return changed
}

// withoutStatus removes the status of a PodTransitionRule, which is large and not used.
func withoutStatus(object any) (any, error) {
	if rule, ok := object.(*appsv1alpha1.PodTransitionRule); ok {
		rule.Status, rule.ManagedFields = appsv1alpha1.PodTransitionRuleStatus{}, nil
	}
	return object, nil
}
