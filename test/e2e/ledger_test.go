package e2e_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/podops-dev/podops/test/audit"
)

// ledger counts writes since a moment, as the API server has logged them. Refused ones
// count like all others.
type ledger struct {
	log   *audit.Log
	mark  audit.Mark
	since time.Time
	place place
}

// openLedger starts to count.
func openLedger(p place) ledger {
	GinkgoHelper()
	mark, err := p.audit.Mark()
	Expect(err).NotTo(HaveOccurred())
	return ledger{log: p.audit, mark: mark, since: time.Now(), place: p}
}

// byOperator are the writes of the operator that pass the filters, in all namespaces.
func (l ledger) byOperator(filters ...audit.Filter) audit.Events {
	GinkgoHelper()
	events, err := l.log.Since(l.mark)
	Expect(err).NotTo(HaveOccurred())
	return events.Where(append(filters, audit.ServiceAccount(managerNamespace, managerAccount))...)
}

// byAnybody are the writes of everybody that pass the filters.
func (l ledger) byAnybody(filters ...audit.Filter) audit.Events {
	GinkgoHelper()
	events, err := l.log.Since(l.mark)
	Expect(err).NotTo(HaveOccurred())
	return events.Where(filters...)
}

// toPods are the operator's writes to pods of the story, status and deletes included.
func (l ledger) toPods() audit.Events {
	GinkgoHelper()
	return l.byOperator(audit.On("pods/*"), audit.InNamespace(l.place.namespace))
}

// toRules are the operator's writes to PodTransitionRules of the story.
func (l ledger) toRules() audit.Events {
	GinkgoHelper()
	return l.byOperator(audit.On("podtransitionrules/*"), audit.InNamespace(l.place.namespace))
}

// worst is the largest number of writes to one object.
func worst(events audit.Events) int {
	groups := events.CountBy(byName)
	if len(groups) == 0 {
		return 0
	}
	return groups[0].Count
}

// detailsWithin is how often a pod is written to, in a story that took so long, to say why
// it waits: never when none can have waited for ten seconds.
func detailsWithin(took time.Duration) int {
	if took < 10*time.Second {
		return 0
	}
	return 1 + int(took/time.Minute)
}

// accepted leaves out the requests that the API server refused.
func accepted(e audit.Event) bool { return !e.Refused() }

// accounts are the writes to the object that was written most often, a line each.
func accounts(events audit.Events) string {
	lines := ""
	for _, group := range events.CountBy(byName)[:min(1, len(events))] {
		for _, e := range events.Where(namedOneOf(map[string]bool{group.Key: true})) {
			lines += fmt.Sprintf("%s %s %s %d %s\n", e.Time.Format("15:04:05.000"), audit.ByTarget(e), e.Name, e.Code, e.Message)
		}
	}
	return lines
}

// namedOneOf are the writes to objects with the names.
func namedOneOf(names map[string]bool) audit.Filter {
	return func(e audit.Event) bool { return names[e.Name] }
}

func byName(e audit.Event) string { return e.Name }

// seconds since the ledger was opened, begun ones included.
func (l ledger) seconds() int { return int(time.Since(l.since)/time.Second) + 1 }
