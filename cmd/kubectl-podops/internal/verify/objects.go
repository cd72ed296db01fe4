package verify

import (
	"cmp"
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
)

// objects are the objects of the files, in the form in which the webhooks of the manager read the
// objects of a cluster.
type objects struct {
	namespace   string
	policies    imports.Policies
	rules       []*appsv1alpha1.PodTransitionRule
	deployments []*appsv1.Deployment
	sets        []*appsv1.StatefulSet
}

var _ client.Reader = &objects{}

func newObjects(documents []manifests.Document, namespace string) *objects {
	o := &objects{namespace: namespace, policies: imports.Policies{}}
	for _, document := range documents {
		switch object := document.Object.(type) {
		case *appsv1alpha1.PodTransitionPolicy:
			o.policies[object.Name] = object
		case *appsv1alpha1.PodTransitionRule:
			o.rules = append(o.rules, object)
		case *appsv1.Deployment:
			o.deployments = append(o.deployments, object)
		case *appsv1.StatefulSet:
			o.sets = append(o.sets, object)
		}
	}
	return o
}

// Get implements client.Reader for PodTransitionPolicies.
func (o *objects) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	into, ok := object.(*appsv1alpha1.PodTransitionPolicy)
	if !ok {
		return fmt.Errorf("reading a %T: files are read for PodTransitionPolicies only", object)
	}
	found, ok := o.policies[key.Name]
	if !ok {
		return apierrors.NewNotFound(runtimeschema.GroupResource{Group: appsv1alpha1.GroupVersion().Group, Resource: "podtransitionpolicies"}, key.Name)
	}
	found.DeepCopyInto(into)
	return nil
}

// List implements client.Reader for PodTransitionPolicies, and for the PodTransitionRules and Deployments of a namespace.
func (o *objects) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	read := client.ListOptions{}
	read.ApplyOptions(options)
	namespace := cmp.Or(read.Namespace, o.namespace)
	switch into := list.(type) {
	case *appsv1alpha1.PodTransitionPolicyList:
		for _, policy := range o.policies {
			into.Items = append(into.Items, *policy)
		}
	case *appsv1alpha1.PodTransitionRuleList:
		for _, rule := range o.rules {
			if cmp.Or(rule.Namespace, o.namespace) == namespace {
				into.Items = append(into.Items, *rule)
			}
		}
	case *appsv1.DeploymentList:
		for _, deployment := range o.deployments {
			if cmp.Or(deployment.Namespace, o.namespace) == namespace {
				into.Items = append(into.Items, *deployment)
			}
		}
	default:
		return fmt.Errorf("listing a %T: files are read for PodTransitionRules, PodTransitionPolicies and Deployments only", list)
	}
	return nil
}

// statefulSets returns the StatefulSets in the namespace of a rule.
func (o *objects) statefulSets(rule *appsv1alpha1.PodTransitionRule) (sets []*appsv1.StatefulSet) {
	for _, set := range o.sets {
		if cmp.Or(set.Namespace, o.namespace) == cmp.Or(rule.Namespace, o.namespace) {
			sets = append(sets, set)
		}
	}
	return sets
}
