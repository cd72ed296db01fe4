package upgrade_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/managerprocess"
)

// requests are the writes of all users, from the audit log.
type requests struct {
	total int

	// rejected and passed are the requests that no manager reviewed although a webhook applies to them, by what the
	// failurePolicy of that webhook makes of it, near the times at which a leader was killed.
	rejected, passed int

	// passedDeletes counts deletes of pods among passed by namespace: no rule was evaluated for them.
	passedDeletes map[string]int

	// passedPods are their names where the request has one, with their namespaces.
	passedPods map[types.NamespacedName]bool

	// unexplained are such requests at all other times.
	unexplained []string

	// forbidden are requests of the manager that it has no right to. Denials by an admission policy of the other version
	// are not among them: the manager sends such a request again (docs/upgrade.md).
	forbidden []string

	// denied is the number of these denials.
	denied int
}

// isDenied reports whether an admission policy for the manager denied a request while versions were mixed.
func isDenied(phase, message string) bool {
	mixed := slices.Contains([]string{"apply manifests", "roll replicas", "apply previous", "roll back replicas"}, phase)
	return mixed && strings.Contains(message, "ValidatingAdmissionPolicy 'podops-manager")
}

// readRequests reads the audit log.
func readRequests(s *system) requests {
	GinkgoHelper()
	events, err := s.audit.All()
	Expect(err).NotTo(HaveOccurred())
	r := requests{passedDeletes: map[string]int{}, passedPods: map[types.NamespacedName]bool{}}
	manager := audit.ServiceAccount(managerprocess.Namespace, managerprocess.Account)
	for _, e := range events {
		name := s.phases.at(e.Time)
		if name == "" {
			continue // the start of the cluster
		}
		r.total++
		text := fmt.Sprintf("%s %s: %s by %s of %s/%s: %d %s",
			e.Time.Format(time.StampMilli), name, audit.ByTarget(e), e.User, e.Namespace, e.Name, e.Code, e.Message)
		switch {
		case !manager(e) || e.Code != 403:
		case isDenied(name, e.Message):
			r.denied++
		default:
			r.forbidden = append(r.forbidden, text)
		}
		if e.Target() == "configmaps" {
			continue // only the probes of install have webhooks there, which do not exist
		}
		rejected := e.Code >= 500 && strings.Contains(e.Message, "failed calling webhook")
		switch {
		case !rejected && !e.FailedOpen:
		case !s.replicas.nearKill(e.Time):
			r.unexplained = append(r.unexplained, text)
		case rejected:
			r.rejected++
		default:
			r.passed++
			if e.Verb == "delete" && e.Target() == "pods" && !e.Refused() {
				r.passedDeletes[e.Namespace]++
				r.passedPods[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}] = true
			}
		}
	}
	return r
}
