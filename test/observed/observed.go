// Package observed awaits that an API server has observed writes: it keeps caches of its own.
package observed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// polling is the polling interval of this package.
const polling = 20 * time.Millisecond

// Object returns once the watch cache of the API server has the object as it is stored, and reads it. An
// update or delete begins with the version in that cache: when it is an earlier version, webhooks review
// the request on it, and again on the stored version.
func Object(ctx context.Context, c client.Client, object client.Object) error {
	key := client.ObjectKeyFromObject(object)
	if err := c.Get(ctx, key, object); err != nil {
		return fmt.Errorf("reading %s: %w", key, err)
	}
	atLeast := &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: object.GetResourceVersion()}}
	err := wait.PollUntilContextCancel(ctx, polling, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, object, atLeast)
		if apierrors.IsTimeout(err) {
			return false, nil // the cache is behind for longer than the API server waits
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("reading %s from the watch cache: %w", key, err)
	}
	return nil
}

// WebhookConfigurations returns once the API server applies every write of a webhook configuration that
// was stored before the call, or with the error of ctx. An API server receives each kind of
// them by a watch, in the order of writes: a probe that is written later, and applied, shows it. Until
// then the webhooks with failurePolicy Ignore may be left out without a trace. The probe denies creates of
// ConfigMaps with a label that nothing else has.
func WebhookConfigurations(ctx context.Context, c client.Client) error {
	name := "probe-" + rand.String(8) + ".podops.kusionstack.io"
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"probe": name}}
	nowhere := admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/" + name)}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, ClientConfig: nowhere, Rules: rules, ObjectSelector: selector, FailurePolicy: &fail,
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: new(int32(1)),
		}},
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: name, ClientConfig: nowhere, Rules: rules, ObjectSelector: selector, FailurePolicy: &fail,
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: new(int32(1)),
		}},
	}
	for _, probe := range []client.Object{validating, mutating} {
		if err := applied(ctx, c, probe, name); err != nil {
			return fmt.Errorf("awaiting that the API server observes a %T: %w", probe, err)
		}
	}
	return nil
}

// applied creates the probe, returns once a request shows it, and deletes it.
func applied(ctx context.Context, c client.Client, probe client.Object, name string) (err error) {
	if err := c.Create(ctx, probe); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Delete(context.WithoutCancel(ctx), probe)) }()
	return wait.PollUntilContextCancel(ctx, polling, true, func(ctx context.Context) (bool, error) {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, GenerateName: "probe-", Labels: map[string]string{"probe": name},
		}}
		err := c.Create(ctx, object, client.DryRunAll)
		if err != nil && !strings.Contains(err.Error(), name) {
			return false, err
		}
		return err != nil, nil
	})
}
