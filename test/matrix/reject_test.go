package matrix_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/stage/stagetest"
)

// rejection is in the message of each rejection.
const rejection = "rejected by the test"

// policyFormat is a policy with a name, for a namespace, resources and a condition on the request that it rejects.
const policyFormat = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [%[2]s]
  matchConditions: [{name: user, expression: "%[3]s"}]
  validations: [{expression: "false", message: "` + rejection + `"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`

// removes are the resources of removals of pods.
const removes = `{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}, {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/eviction]}`

// policy creates a policy, and waits until it rejects a dry run.
func (c *cell) policy(ctx context.Context, resources, condition string, dryRun act) error {
	if err := c.KubectlWith(ctx, fmt.Sprintf(policyFormat, c.Namespace, resources, condition), "apply", "--filename=-"); err != nil {
		return err
	}
	return c.awaitRejection(ctx, dryRun, true)
}

// awaitRejection waits until a dry run is rejected by the policies and webhooks of the test, or is no longer.
func (c *cell) awaitRejection(ctx context.Context, dryRun act, rejected bool) error {
	for {
		err := dryRun(ctx, c)
		if (err != nil && strings.Contains(err.Error(), rejection)) == rejected {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for rejection (%t): %w, the last request: %w", rejected, ctx.Err(), err)
		case <-time.After(2 * stagetest.Polling):
		}
	}
}

// dryDelete is a dry run of a delete of the first pod.
func dryDelete(ctx context.Context, c *cell) error {
	return c.Delete(ctx, c.first(), client.DryRunAll)
}

// freeze has a policy reject every removal of pods that is not the end of a kubelet.
func freeze(ctx context.Context, c *cell) error {
	return c.policy(ctx, removes, "!('system:nodes' in request.userInfo.groups)", dryDelete)
}

// thaw removes the policy of freeze.
func thaw(ctx context.Context, c *cell) error {
	if err := c.Kubectl(ctx, "delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", c.Namespace); err != nil {
		return err
	}
	return c.awaitRejection(ctx, dryDelete, false)
}

// frozen waits until the policy of freeze has rejected the removal of a pod.
func frozen(ctx context.Context, c *cell) error {
	for {
		events, err := c.Requests()
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Refused() && e.Resource == "pods" && userName(e) != "the client" && strings.Contains(e.Message, rejection) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for a removal that the policy rejects: %w\n%s", ctx.Err(), c.Describe())
		case <-time.After(5 * stagetest.Polling):
		}
	}
}
