package e2e_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/managerprocess"
)

// ledger counts writes since a moment, from the audit log of the API server. Rejected ones
// count, too.
type ledger struct {
	log      *audit.Log
	mark     audit.Mark
	since    time.Time
	scenario scenario
}

// openLedger starts counting.
func openLedger(p scenario) ledger {
	GinkgoHelper()
	mark, err := p.audit.Mark()
	Expect(err).NotTo(HaveOccurred())
	return ledger{log: p.audit, mark: mark, since: time.Now(), scenario: p}
}

// byOperator returns the writes of the operator that pass the filters, in all namespaces.
func (l ledger) byOperator(filters ...audit.Filter) audit.Events {
	GinkgoHelper()
	events, err := l.log.Since(l.mark)
	Expect(err).NotTo(HaveOccurred())
	return events.Where(append(filters, audit.ServiceAccount(managerprocess.Namespace, managerprocess.Account))...)
}

// byAllUsers returns the writes of all users that pass the filters.
func (l ledger) byAllUsers(filters ...audit.Filter) audit.Events {
	GinkgoHelper()
	events, err := l.log.Since(l.mark)
	Expect(err).NotTo(HaveOccurred())
	return events.Where(filters...)
}

// toPods returns the operator's writes to pods of the scenario, status and deletes
// included.
func (l ledger) toPods() audit.Events {
	GinkgoHelper()
	return l.byOperator(audit.On("pods/*"), audit.InNamespace(l.scenario.namespace))
}

// toRules returns the operator's writes to PodTransitionRules of the scenario.
func (l ledger) toRules() audit.Events {
	GinkgoHelper()
	return l.byOperator(audit.On("podtransitionrules/*"), audit.InNamespace(l.scenario.namespace))
}

// worst returns the largest number of writes to one object.
func worst(events audit.Events) int {
	groups := events.CountBy(byName)
	if len(groups) == 0 {
		return 0
	}
	return groups[0].Count
}

// detailsWithin returns how often the reason of a wait is written to a pod in a scenario of
// this duration: never when no pod can have waited for ten seconds.
func detailsWithin(took time.Duration) int {
	if took < 10*time.Second {
		return 0
	}
	return 1 + int(took/time.Minute)
}

// accepted leaves out the requests that the API server rejected.
func accepted(e audit.Event) bool { return !e.Refused() }

// accounts returns the writes to the object with the most writes, one per line.
func accounts(events audit.Events) string {
	lines := ""
	for _, group := range events.CountBy(byName)[:min(1, len(events))] {
		for _, e := range events.Where(namedOneOf(map[string]bool{group.Key: true})) {
			lines += fmt.Sprintf("%s %s %s %d %s\n", e.Time.Format("15:04:05.000"), audit.ByTarget(e), e.Name, e.Code, e.Message)
		}
	}
	return lines
}

// namedOneOf returns the filter for writes to objects with the names.
func namedOneOf(names map[string]bool) audit.Filter {
	return func(e audit.Event) bool { return names[e.Name] }
}

func byName(e audit.Event) string { return e.Name }

// seconds returns the seconds since the ledger was opened, rounded up.
func (l ledger) seconds() int { return int(time.Since(l.since)/time.Second) + 1 }
