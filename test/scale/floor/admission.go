package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/pkg/runtime/prune"
	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// metadata are the fields of a pod from which a lifecycle follows.
type metadata struct {
	Metadata struct {
		UID             types.UID         `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
		Finalizers      []string          `json:"finalizers"`
	} `json:"metadata"`
}

// reviews allows every request, after it has decoded the metadata of the two objects.
func reviews() http.Handler {
	keep := []prune.Field{{Name: "metadata", Only: []prune.Field{{Name: "uid"}, {Name: "resourceVersion"}, {Name: "labels"}, {Name: "finalizers"}}}}
	return review.New(admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		for _, object := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
			if len(object) == 0 {
				continue
			}
			kept, err := prune.JSON(object, keep)
			if err != nil {
				return admission.Errored(http.StatusBadRequest, err)
			}
			if err := json.Unmarshal(kept, &metadata{}); err != nil {
				return admission.Errored(http.StatusBadRequest, err)
			}
		}
		return admission.Allowed("")
	}))
}

// publish makes the API server send the reviews of every webhook of the manifests.
func publish(ctx context.Context, config *rest.Config, at *url.URL, bundle []byte) error {
	api, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	mutating.Name, validating.Name = certificates.MutatingConfigurationName, certificates.ValidatingConfigurationName
	for _, object := range []client.Object{mutating, validating} {
		if err := api.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return fmt.Errorf("reading webhooks: %w", err)
		}
		before := client.StrategicMergeFrom(object.DeepCopyObject().(client.Object))
		for i := range mutating.Webhooks {
			point(&mutating.Webhooks[i].ClientConfig, at, bundle)
		}
		for i := range validating.Webhooks {
			point(&validating.Webhooks[i].ClientConfig, at, bundle)
		}
		if err := api.Patch(ctx, object, before); err != nil {
			return fmt.Errorf("writing webhooks: %w", err)
		}
	}
	return nil
}

// point keeps the path of a webhook.
func point(webhook *admissionregistrationv1.WebhookClientConfig, at *url.URL, bundle []byte) {
	path := ""
	if webhook.Service != nil && webhook.Service.Path != nil {
		path = *webhook.Service.Path
	}
	if webhook.URL != nil {
		if former, err := url.Parse(*webhook.URL); err == nil {
			path = former.Path
		}
	}
	address := at.JoinPath(path).String()
	*webhook = admissionregistrationv1.WebhookClientConfig{URL: &address, CABundle: bundle}
}
