package manifests_test

import (
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

var _ = Describe("A PodOperation", func() {
	const owner = `"target":{"owner":{"kind":"Deployment","name":"web"}}`
	const restart = `"action":{"type":"Restart"}`

	DescribeTable("is accepted with", func(ctx context.Context, spec string) {
		Expect(server.admin.Create(ctx, newOperation("default", "{"+spec+"}"), client.DryRunAll)).To(Succeed())
	},
		Entry("an owner", owner+`,`+restart),
		Entry("a selector", `"target":{"selector":{"matchLabels":{"app":"web"}}},`+restart),
		Entry("an expression", `"target":{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}},`+restart),
		Entry("names", `"target":{"names":["web-0","web-1"]},`+restart),
		Entry("containers to restart", owner+`,"action":{"type":"Restart","restart":{"containers":["web"]}}`),
		Entry("images", owner+`,"action":{"type":"UpdateImages","updateImages":{"containers":[{"name":"web","image":"web:2"}]}}`),
		Entry("resources", owner+`,"action":{"type":"Resize","resize":{"containers":[{"name":"web","requests":{"cpu":"100m"},"limits":{"memory":"1Gi"}}]}}`),
		Entry("a grace period", owner+`,"action":{"type":"Delete","gracePeriodSeconds":5}`),
		Entry("an eviction", owner+`,"action":{"type":"Evict"}`),
		Entry("a count as its partition", owner+`,`+restart+`,"partition":3`),
		Entry("a percentage as its partition", owner+`,`+restart+`,"partition":"50%"`),
		Entry("times", owner+`,`+restart+`,"deadlineSeconds":60,"ttlSecondsAfterFinished":0,"order":"NewestFirst"`),
	)

	DescribeTable("is denied with", func(ctx context.Context, spec, message string) {
		err := server.admin.Create(ctx, newOperation("default", "{"+spec+"}"), client.DryRunAll)
		Expect(err).To(Satisfy(apierrors.IsInvalid))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("no target", `"target":{},`+restart, "set exactly one of selector, names and owner"),
		Entry("two targets", `"target":{"names":["a"],"owner":{"kind":"Deployment","name":"web"}},`+restart, "set exactly one of selector, names and owner"),
		Entry("an empty selector", `"target":{"selector":{}},`+restart, "an empty selector would catch every pod"),
		Entry("an unknown operator", `"target":{"selector":{"matchExpressions":[{"key":"a","operator":"Is","values":["b"]}]}},`+restart, "In or NotIn with values"),
		Entry("an operator without values", `"target":{"selector":{"matchExpressions":[{"key":"a","operator":"In"}]}},`+restart, "In or NotIn with values"),
		Entry("an empty name", `"target":{"names":[""]},`+restart, "should be at least 1 chars long"),
		Entry("an unknown action", owner+`,"action":{"type":"Reboot"}`, "Unsupported value"),
		Entry("images of a restart", owner+`,"action":{"type":"Restart","updateImages":{"containers":[{"name":"web","image":"web:2"}]}}`, "updateImages is required for the type UpdateImages, and for no other"),
		Entry("an update without images", owner+`,"action":{"type":"UpdateImages"}`, "updateImages is required for the type UpdateImages, and for no other"),
		Entry("an image with a space", owner+`,"action":{"type":"UpdateImages","updateImages":{"containers":[{"name":"web","image":"web 2"}]}}`, "must not contain white space"),
		Entry("containers of a deletion", owner+`,"action":{"type":"Delete","restart":{"containers":["web"]}}`, "restart is for the type Restart"),
		Entry("a resize without resources", owner+`,"action":{"type":"Resize","resize":{"containers":[{"name":"web"}]}}`, "set requests or limits"),
		Entry("a resize of nothing", owner+`,"action":{"type":"Resize","resize":{"containers":[{"name":"web","requests":{}}]}}`, "set cpu or memory"),
		Entry("the grace period of a restart", owner+`,"action":{"type":"Restart","gracePeriodSeconds":5}`, "gracePeriodSeconds is for the types Delete and Evict"),
		Entry("a grace period of 0", owner+`,"action":{"type":"Delete","gracePeriodSeconds":0}`, "greater than or equal to 1"),
		Entry("a negative partition", owner+`,`+restart+`,"partition":-1`, "partition must be a count"),
		Entry("a partition over 100 %", owner+`,`+restart+`,"partition":"101%"`, "partition must be a count"),
		Entry("a deadline of 0", owner+`,`+restart+`,"deadlineSeconds":0`, "greater than or equal to 1"),
	)

	It("lets its target, action and order not change, and its end be no resumption", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		operation := newOperation(namespace, "{"+owner+","+restart+`,"suspend":true}`)
		Expect(server.admin.Create(ctx, operation)).To(Succeed())
		for _, change := range []string{
			`{"target":{"owner":{"name":"other"}}}`, `{"action":{"type":"Delete"}}`, `{"order":"Name"}`, `{"target":{"owner":null,"names":["a"]}}`,
		} {
			Expect(patchOperation(ctx, server.admin, operation, change)).To(Satisfy(apierrors.IsInvalid), change)
		}
		Expect(patchOperation(ctx, server.admin, operation, `{"suspend":false,"partition":2,"deadlineSeconds":9}`)).To(Succeed())
		Expect(patchOperation(ctx, server.admin, operation, `{"cancel":true}`)).To(Succeed())
		Expect(patchOperation(ctx, server.admin, operation, `{"cancel":false}`)).To(MatchError(ContainSubstring("cannot be resumed")))
		Expect(patchOperation(ctx, server.admin, operation, `{"cancel":null}`)).NotTo(Succeed())
	})

	Describe("gives no right that its user lacks:", Ordered, func() {
		var namespace string
		actions := map[string]string{
			"Restart":      `{"type":"Restart"}`,
			"UpdateImages": `{"type":"UpdateImages","updateImages":{"containers":[{"name":"web","image":"web:2"}]}}`,
			"Resize":       `{"type":"Resize","resize":{"containers":[{"name":"web","requests":{"cpu":"1"}}]}}`,
			"Delete":       `{"type":"Delete"}`,
			"Evict":        `{"type":"Evict"}`,
		}
		create := func(ctx context.Context, user, action string) error {
			return as(user, []string{"system:authenticated"}).Create(ctx, newOperation(namespace, "{"+owner+`,"action":`+actions[action]+"}"), client.DryRunAll)
		}

		BeforeAll(func(ctx context.Context) {
			namespace = newNamespace(ctx)
			grant(ctx, namespace, "operator", access("apps.kusionstack.io", "podoperations", "create", "update", "patch", "get"))
			// The API server learns of roles and of policies by watches.
			Eventually(func() error { return create(ctx, "operator", "Delete") }).Should(MatchError(ContainSubstring("which needs the right to")))
		})

		DescribeTable("an action needs the right to do the same", func(ctx context.Context, action string, right rbacv1.PolicyRule) {
			err := create(ctx, "operator", action)
			Expect(err).To(Satisfy(apierrors.IsForbidden))
			Expect(err).To(MatchError(ContainSubstring("which needs the right to")))
			user := "operator-" + strings.ToLower(action)
			grant(ctx, namespace, user, access("apps.kusionstack.io", "podoperations", "create"), right)
			Eventually(func() error { return create(ctx, user, action) }).Should(Succeed())
			for other := range actions {
				same := action == "Restart" && other == "UpdateImages" || action == "UpdateImages" && other == "Restart"
				if other != action && !same {
					Expect(create(ctx, user, other)).To(Satisfy(apierrors.IsForbidden), other)
				}
			}
		},
			Entry(nil, "Restart", access("", "pods", "patch")),
			Entry(nil, "UpdateImages", access("", "pods", "update")),
			Entry(nil, "Resize", access("", "pods/resize", "patch")),
			Entry(nil, "Delete", access("", "pods", "delete")),
			Entry(nil, "Evict", access("", "pods/eviction", "create")),
		)

		It("an edit that lets an operation continue needs it, too, and its cancellation does not", func(ctx context.Context) {
			operation := newOperation(namespace, "{"+owner+","+restart+`,"suspend":true}`)
			Expect(server.admin.Create(ctx, operation)).To(Succeed())
			user := as("operator", []string{"system:authenticated"})
			Expect(patchOperation(ctx, user, operation, `{"suspend":false}`)).To(Satisfy(apierrors.IsForbidden))
			Expect(patchOperation(ctx, user, operation, `{"cancel":true}`)).To(Succeed())
		})

		It("the manager redirects no operation, and deletes none that has not ended", func(ctx context.Context) {
			operation := newOperation(namespace, "{"+owner+","+restart+`,"suspend":true}`)
			Expect(server.admin.Create(ctx, operation)).To(Succeed())
			manager := asManager()
			Expect(patchOperation(ctx, manager, operation, `{"suspend":false}`)).To(Satisfy(apierrors.IsForbidden))
			Expect(manager.Delete(ctx, operation.DeepCopy())).To(Satisfy(apierrors.IsForbidden))
			metadata := func(patch string) error {
				return manager.Patch(ctx, operation.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":`+patch+`}`)))
			}
			Expect(metadata(`{"labels":{"a":"b"}}`)).To(Satisfy(apierrors.IsForbidden))
			Expect(metadata(`{"finalizers":["example.com/other"]}`)).To(Satisfy(apierrors.IsForbidden))
			Expect(metadata(`{"finalizers":["` + appsv1alpha1.PodOperationFinalizer + `"]}`)).To(Succeed())
			Expect(metadata(`{"finalizers":null}`)).To(Succeed())
			status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"completionTime":"2026-01-01T00:00:00Z"}}`))
			Expect(manager.Status().Patch(ctx, operation.DeepCopy(), status)).To(Succeed())
			Expect(manager.Delete(ctx, operation.DeepCopy())).To(Succeed())
		})
	})
})

func newOperation(namespace, spec string) *appsv1alpha1.PodOperation {
	GinkgoHelper()
	operation := &appsv1alpha1.PodOperation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "operation-"}}
	Expect(json.Unmarshal([]byte(spec), &operation.Spec)).To(Succeed())
	return operation
}

func patchOperation(ctx context.Context, c client.Client, operation *appsv1alpha1.PodOperation, spec string) error {
	return c.Patch(ctx, operation.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`)))
}

func access(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// grant gives a user rights in a namespace.
func grant(ctx context.Context, namespace, user string, rules ...rbacv1.PolicyRule) {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}, Rules: rules}
	Expect(server.admin.Create(ctx, role)).To(Succeed())
	Expect(server.admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
}
