package admission

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/object"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

// scope are the requests that a webhook or a policy is about, before its expressions.
type scope struct {
	rules      []admissionregistrationv1.RuleWithOperations
	objects    labels.Selector
	namespaces labels.Selector
}

// newScope returns the scope of a policy.
func newScope(match *admissionregistrationv1.MatchResources) (s scope, err error) {
	if len(match.ExcludeResourceRules) > 0 {
		return s, fmt.Errorf("excludeResourceRules are not supported")
	}
	for _, rule := range match.ResourceRules {
		if len(rule.ResourceNames) > 0 {
			return s, fmt.Errorf("resourceNames are not supported")
		}
		s.rules = append(s.rules, rule.RuleWithOperations)
	}
	if s.objects, err = metav1.LabelSelectorAsSelector(match.ObjectSelector); err != nil {
		return s, fmt.Errorf("objectSelector: %w", err)
	}
	if s.namespaces, err = metav1.LabelSelectorAsSelector(match.NamespaceSelector); err != nil {
		return s, fmt.Errorf("namespaceSelector: %w", err)
	}
	return s, nil
}

// newHookScope returns the scope of a webhook.
func newHookScope(h interface {
	GetRules() []admissionregistrationv1.RuleWithOperations
	GetParsedObjectSelector() (labels.Selector, error)
	GetParsedNamespaceSelector() (labels.Selector, error)
},
) (s scope, err error) {
	s.rules = h.GetRules()
	if s.objects, err = h.GetParsedObjectSelector(); err != nil {
		return s, fmt.Errorf("objectSelector: %w", err)
	}
	if s.namespaces, err = h.GetParsedNamespaceSelector(); err != nil {
		return s, fmt.Errorf("namespaceSelector: %w", err)
	}
	return s, nil
}

// GetParsedObjectSelector implements object.ObjectSelectorProvider.
func (s scope) GetParsedObjectSelector() (labels.Selector, error) { return s.objects, nil }

// names reports whether the rules name the resource and the operation of a request.
func (s scope) names(a admission.Attributes) bool {
	return slices.ContainsFunc(s.rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		matcher := rules.Matcher{Rule: rule, Attr: a}
		return matcher.Matches()
	})
}

// contains reports whether the scope contains a request. The labels are those of a namespace.
func (s scope) contains(a admission.Attributes, namespace func(string) labels.Set) bool {
	if !s.names(a) {
		return false
	}
	if selected, err := (&object.Matcher{}).MatchObjectSelector(s, a); err != nil || !selected {
		return false
	}
	return a.GetNamespace() == "" || s.namespaces.Empty() || s.namespaces.Matches(namespace(a.GetNamespace()))
}
