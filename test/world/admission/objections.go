package admission

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"

	"github.com/podops-dev/podops/test/world/apiserver"
)

// Stage is the place of an Objection in the admission chain.
type Stage int

const (
	// Policy objections come before the validating webhooks.
	Policy Stage = iota
	// Webhook objections are validating webhooks, which are called together with those of PodOps.
	Webhook
	// Quota objections come last, when PodOps has already answered.
	Quota
)

// Objection is a policy, a webhook or a quota of others.
type Objection struct {
	// Name of the policy, the webhook or the quota.
	Name  string
	Stage Stage
	// Concerns reports whether the objection is about a request.
	Concerns func(*apiserver.Request) bool
	// Chance is the share of the requests that are denied, from 0 to 1.
	Chance float64
	// Delay is the longest time that a webhook takes.
	Delay time.Duration
}

// On returns a function that selects requests by operation and resource, with its subresource as in replicasets/scale,
// and by user. Without users it selects those of all.
func On(operation admissionv1.Operation, resource string, users ...string) func(*apiserver.Request) bool {
	return func(r *apiserver.Request) bool {
		target := r.Resource.Resource
		if r.Subresource != "" {
			target += "/" + r.Subresource
		}
		return r.Operation == operation && target == resource && (len(users) == 0 || slices.Contains(users, r.User.Username))
	}
}

// Hostile returns a webhook that denies some of the requests that it is about, and delays others.
func Hostile(name string, chance float64, delay time.Duration, concerns func(*apiserver.Request) bool) Objection {
	return Objection{Name: name, Stage: Webhook, Concerns: concerns, Chance: chance, Delay: delay}
}

// Exceeded returns a ResourceQuota that some new pods exceed.
func Exceeded(name string, chance float64) Objection {
	return Objection{Name: name, Stage: Quota, Concerns: On(admissionv1.Create, "pods"), Chance: chance}
}

// NoScale returns a policy that denies users to change the Scale of ReplicaSets.
func NoScale(name string, users ...string) Objection {
	return Objection{Name: name, Stage: Policy, Concerns: On(admissionv1.Update, "replicasets/scale", users...), Chance: 1}
}

// objection is an Objection to a request.
type objection struct {
	Objection
	denies bool
	delay  time.Duration
}

type objections []objection

// objections returns the objections to a request.
func (c *Chain) objections(r *apiserver.Request) objections {
	c.mu.Lock()
	quiet := c.quiet
	c.mu.Unlock()
	if quiet {
		return nil
	}
	var all objections
	for _, o := range c.options.Objections {
		if !o.Concerns(r) {
			continue
		}
		key := o.Name + " " + identity(r)
		chances := newChances(c.options.Seed, key, c.number(key))
		raised := objection{Objection: o, denies: chances.Float64() < o.Chance, delay: time.Duration(chances.Float64() * float64(o.Delay))}
		if raised.denies || raised.delay > 0 {
			all = append(all, raised)
		}
	}
	return all
}

// at returns the objections of a stage.
func (o objections) at(stage Stage) objections {
	return slices.DeleteFunc(slices.Clone(o), func(one objection) bool { return one.Stage != stage })
}

// wait waits for the delay of an objection.
func (o objection) wait(ctx context.Context) error {
	if o.delay <= 0 {
		return nil
	}
	timer := time.NewTimer(o.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// denial returns the error of the first objection that denies the request, as a client receives it.
func (o objections) denial(r *apiserver.Request) error {
	i := slices.IndexFunc(o, func(one objection) bool { return one.denies })
	if i < 0 {
		return nil
	}
	resource := schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
	switch name := o[i].Name; o[i].Stage {
	case Policy:
		return denied(bare(r), name, name, metav1.StatusReasonForbidden, "not allowed here")
	case Quota:
		return apierrors.NewForbidden(resource, r.Name, fmt.Errorf("exceeded quota: %s, requested: pods=1, used: pods=1, limited: pods=1", name))
	default:
		return webhookerrors.ToStatusErr(name, &metav1.Status{
			Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "not allowed here",
		})
	}
}
