package admission

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // the defaults of webhooks
	_ "k8s.io/kubernetes/pkg/apis/core/install"                  // the Service in the manifests
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"                  // the parameters of policies
)

// Configuration is what a cluster admits by: the webhooks and policies of manifests. Its expressions are compiled once,
// and it is not changed after that: several clusters may share it.
type Configuration struct {
	mutating   []hook
	validating []hook
	policies   []policy
	bindings   []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// others are all other objects, among them the parameters of policies.
	others []runtime.Object
}

// hook is a webhook that reviews are sent to.
type hook struct {
	webhook.WebhookAccessor
	scope      scope
	conditions matchconditions.Matcher
	// again reports whether the webhook is called a second time if a later one changes the object.
	again bool
}

// Read returns the configuration of all manifests in a folder of a file system.
func Read(files fs.FS, folders ...string) (*Configuration, error) {
	c := &Configuration{}
	conditions := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	for _, folder := range folders {
		names, err := fs.Glob(files, folder+"/*.yaml")
		if err != nil {
			return nil, fmt.Errorf("list manifests: %w", err)
		}
		for _, name := range names {
			data, err := fs.ReadFile(files, name)
			if err != nil {
				return nil, fmt.Errorf("read a manifest: %w", err)
			}
			if err := c.read(data, conditions); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return c, nil
}

// read adds the objects of a manifest. It skips documents that are no objects of Kubernetes.
func (c *Configuration) read(data []byte, conditions cel.ConditionCompiler) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a document: %w", err)
		}
		object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		legacyscheme.Scheme.Default(object)
		if err := c.add(object, conditions); err != nil {
			return err
		}
	}
}

func (c *Configuration) add(object runtime.Object, conditions cel.ConditionCompiler) error {
	switch o := object.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			again := *o.Webhooks[i].ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
			made, err := newHook(webhook.NewMutatingWebhookAccessor(fmt.Sprintf("%s/%d", o.Name, i), o.Name, &o.Webhooks[i]), conditions, again)
			if err != nil {
				return err
			}
			c.mutating = append(c.mutating, made)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			made, err := newHook(webhook.NewValidatingWebhookAccessor(fmt.Sprintf("%s/%d", o.Name, i), o.Name, &o.Webhooks[i]), conditions, false)
			if err != nil {
				return err
			}
			c.validating = append(c.validating, made)
		}
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		compiled, err := compile(o)
		if err != nil {
			return err
		}
		c.policies = append(c.policies, compiled)
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		if o.Spec.MatchResources != nil {
			return fmt.Errorf("binding %s: matchResources are not supported", o.Name)
		}
		c.bindings = append(c.bindings, o)
	default:
		c.others = append(c.others, object)
	}
	return nil
}

func newHook(accessor webhook.WebhookAccessor, conditions cel.ConditionCompiler, again bool) (hook, error) {
	s, err := newHookScope(accessor)
	if err != nil {
		return hook{}, fmt.Errorf("webhook %s: %w", accessor.GetName(), err)
	}
	return hook{accessor, s, accessor.GetCompiledMatcher(conditions), again}, nil
}

// parameter returns the object of the manifests that a binding refers to; nil if it does not exist.
func (c *Configuration) parameter(kind *admissionregistrationv1.ParamKind, name string) runtime.Object {
	wanted := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	i := slices.IndexFunc(c.others, func(object runtime.Object) bool {
		return object.GetObjectKind().GroupVersionKind() == wanted && nameFrom(object) == name
	})
	if i < 0 {
		return nil
	}
	return c.others[i]
}

// String names the webhooks and policies.
func (c *Configuration) String() string {
	var names []string
	for _, h := range slices.Concat(c.mutating, c.validating) {
		names = append(names, h.GetType()+" "+h.GetName())
	}
	for _, p := range c.policies {
		names = append(names, "policy "+p.definition.Name)
	}
	return strings.Join(names, "\n")
}
