package upgrade_test

import (
	"fmt"
	"os"
	"path/filepath"
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

	// denied is the number of these denials, and newer that of requests which only a webhook of the current release reviews and
	// that came to a replica of the previous one.
	denied, newer int
}

// isMixed reports whether replicas and manifests of both versions are there in a phase.
func isMixed(phase string) bool {
	return slices.Contains([]string{"apply manifests", "roll replicas", "apply previous", "roll back replicas"}, phase)
}

// serves reports whether the manifests of a release have a webhook.
func (r release) serves(webhook string) bool {
	GinkgoHelper()
	for _, name := range []string{"mutating.yaml", "validating.yaml"} {
		manifest, err := os.ReadFile(filepath.Join(r.config, "webhook", name))
		Expect(err).NotTo(HaveOccurred())
		if strings.Contains(string(manifest), "- name: "+webhook+"\n") {
			return true
		}
	}
	return false
}

// isDenied reports whether an admission policy for the manager denied a request while versions were mixed.
func isDenied(phase, message string) bool {
	return isMixed(phase) && strings.Contains(message, "ValidatingAdmissionPolicy 'podops-manager")
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
		case !rejected && isMixed(name) && !slices.ContainsFunc(e.Unanswered, s.previous.serves):
			r.newer++ // a replica of the previous release does not serve a webhook that only the current release has
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
