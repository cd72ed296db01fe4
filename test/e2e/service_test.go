package e2e_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/podops-dev/podops/test/managerprocess"
)

// openService opens a Service for the managers of a set until the suite ends.
func openService(f *managerSet) *managerprocess.Service {
	GinkgoHelper()
	service, err := managerprocess.OpenService(func() []managerprocess.Endpoint {
		var all []managerprocess.Endpoint
		for _, m := range f.running() {
			all = append(all, managerprocess.Endpoint{Process: m.Process, Webhook: m.webhook})
		}
		return all
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(service.Close)
	return service
}

// lag makes the Service of the managers update its endpoints only once per interval until the scenario ends.
func (f *managerSet) lag(interval time.Duration) {
	GinkgoHelper()
	DeferCleanup(f.service.Lag(interval))
}
