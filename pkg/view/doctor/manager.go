package doctor

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// lastDays is the time before its end at which a certificate should have been renewed: the manager
	// renews it after two thirds of its 90 days.
	lastDays = 21 * 24 * time.Hour

	// maxRefusal bounds the text of an API server in a finding.
	maxRefusal = 512
)

func managerChecks() []check {
	return []check{
		{id: "webhook-ca", reads: []Source{SourceWebhooks, SourceCertificate}, find: (*inspection).webhookCA},
		{id: "certificate-expiring", reads: []Source{SourceCertificate}, find: (*inspection).certificateExpiring},
		{id: "webhook-no-endpoints", reads: []Source{SourceWebhooks, SourceManager}, find: (*inspection).webhookNoEndpoints},
		{id: "webhook-no-answer", reads: []Source{SourceProbe}, find: (*inspection).webhookNoAnswer},
		{id: "manager-no-leader", reads: []Source{SourceManager}, find: (*inspection).managerNoLeader},
		{id: "manager-unavailable", reads: []Source{SourceWebhooks, SourceManager}, find: (*inspection).managerUnavailable},
		{id: "manager-namespace", reads: []Source{SourceNamespaces}, find: (*inspection).managerNamespace},
		{id: "break-glass", reads: []Source{SourceNamespaces, SourcePods}, find: (*inspection).breakGlass},
	}
}

// logs is the command that shows why the manager does not do its part.
func (in *inspection) logs() string {
	return fmt.Sprintf("kubectl logs -n %s deploy/podops-controller-manager --all-pods", in.Manager.Namespace)
}

// certificate returns the serving certificate, or nil if the Secret has no certificate.
func (m Manager) certificate() *x509.Certificate {
	if m.Certificate == nil {
		return nil
	}
	block, _ := pem.Decode(m.Certificate.Data[corev1.TLSCertKey])
	if block == nil {
		return nil
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return certificate
}

// webhookCA verifies the certificate as API servers do.
func (in *inspection) webhookCA() []Finding {
	certificate := in.Manager.certificate()
	if certificate == nil {
		return []Finding{{
			Level: LevelError, Object: object("secret", in.Manager.Namespace, "podops-webhook-certs"), Remedy: in.logs(),
			Text: "has no certificate: the manager creates it when it starts, and no webhook answers before",
		}}
	}
	var findings []Finding
	for _, w := range in.Installed.webhooks() {
		host := ""
		switch {
		case w.client.Service != nil:
			host = fmt.Sprintf("%s.%s.svc", w.client.Service.Name, w.client.Service.Namespace)
		case w.client.URL != nil:
			if address, err := url.Parse(*w.client.URL); err == nil {
				host = address.Hostname()
			}
		}
		problem := verify(certificate, w.client.CABundle, host, in.now)
		if problem == "" {
			continue
		}
		findings = append(findings, Finding{
			Level: LevelError, Object: w.configuration, Remedy: in.logs(),
			Text: fmt.Sprintf("webhook %s: %s; the manager corrects that while it runs", w.name, problem),
		})
	}
	return findings
}

// verify returns why an API server with this bundle does not trust a certificate; empty if it does.
func verify(certificate *x509.Certificate, bundle []byte, host string, now time.Time) string {
	if len(bytes.TrimSpace(bundle)) == 0 {
		return "its caBundle is empty, so that API servers trust no certificate of the manager"
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return "its caBundle has no certificate"
	}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: host}); err != nil {
		return fmt.Sprintf("its caBundle does not verify the certificate of the manager for %s (%v)", host, err)
	}
	return ""
}

func (in *inspection) certificateExpiring() []Finding {
	certificate := in.Manager.certificate()
	if certificate == nil || in.now.Before(certificate.NotAfter.Add(-lastDays)) {
		return nil
	}
	finding := Finding{
		Level: LevelWarning, Object: object("secret", in.Manager.Namespace, "podops-webhook-certs"), Remedy: in.logs(),
		Text: fmt.Sprintf("its certificate ends at %s: the manager should have renewed it", certificate.NotAfter.UTC().Format(time.RFC3339)),
	}
	if in.now.After(certificate.NotAfter) {
		finding.Level = LevelError
		finding.Text = fmt.Sprintf("its certificate has ended at %s: no webhook answers", certificate.NotAfter.UTC().Format(time.RFC3339))
	}
	return []Finding{finding}
}

// throughService reports whether API servers reach the webhooks at the Service of the manager.
func (in *inspection) throughService() bool {
	for _, w := range in.Installed.webhooks() {
		if w.client.Service != nil {
			return true
		}
	}
	return false
}

func (in *inspection) webhookNoEndpoints() []Finding {
	if !in.throughService() {
		return nil
	}
	finding := Finding{
		Level: LevelError, Object: object("service", in.Manager.Namespace, "podops-webhook"),
		Remedy: fmt.Sprintf("kubectl get pods -n %s -l app.kubernetes.io/name=podops", in.Manager.Namespace),
	}
	if in.Manager.Service == nil {
		finding.Text, finding.Remedy = "does not exist: API servers reach no webhook", reinstall
		return []Finding{finding}
	}
	for _, slice := range in.Manager.EndpointSlices {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				return nil
			}
		}
	}
	finding.Text = "has no ready endpoint: API servers reach no webhook, and reject new pods under PodOps"
	return []Finding{finding}
}

func (in *inspection) webhookNoAnswer() []Finding {
	if in.Manager.Refusal == "" {
		return nil
	}
	return []Finding{{
		Level: LevelError, Object: kindValidating + " podops-validating", Remedy: in.logs(),
		Text: "the dry run of a PodTransitionRule failed: " + text.Line(in.Manager.Refusal, maxRefusal),
	}}
}

func (in *inspection) managerNoLeader() []Finding {
	finding := Finding{
		Level: LevelError, Object: object("lease", in.Manager.Namespace, appsv1alpha1.ManagerName), Remedy: in.logs(),
	}
	switch lease := in.Manager.Lease; {
	case lease == nil:
		finding.Text = "does not exist: no manager leads, and no lifecycle advances"
	case lease.Spec.RenewTime == nil || !trafficadapter.IsHeld(lease, in.now):
		finding.Text = "is not renewed: no manager leads, and no lifecycle advances"
		if lease.Spec.RenewTime != nil {
			finding.Text = fmt.Sprintf("was renewed %s ago: no manager leads, and no lifecycle advances", age(in.now, lease.Spec.RenewTime.Time))
		}
	default:
		return nil
	}
	return []Finding{finding}
}

func (in *inspection) managerUnavailable() []Finding {
	finding := Finding{
		Level: LevelError, Object: object("deployment", in.Manager.Namespace, appsv1alpha1.ManagerName),
		Remedy: fmt.Sprintf("kubectl describe pods -n %s -l app.kubernetes.io/name=podops", in.Manager.Namespace),
	}
	deployment := in.Manager.Deployment
	if deployment == nil {
		if !in.throughService() {
			return nil
		}
		finding.Text, finding.Remedy = "does not exist", reinstall
		return []Finding{finding}
	}
	want := int32(1)
	if deployment.Spec.Replicas != nil {
		want = *deployment.Spec.Replicas
	}
	switch available := deployment.Status.AvailableReplicas; {
	case want == 0 && !in.throughService(), available >= want && want > 0:
		return nil
	case available > 0:
		finding.Level = LevelWarning
		finding.Text = fmt.Sprintf("%d of %d replicas are available", available, want)
	default:
		finding.Text = fmt.Sprintf("0 of %d replicas are available: no webhook answers, and no lifecycle advances", want)
	}
	return []Finding{finding}
}

func (in *inspection) managerNamespace() []Finding {
	for _, namespace := range in.Namespaces {
		if namespace.Name == in.Manager.Namespace && namespace.Labels[appsv1alpha1.ControlLabelKey] != "false" {
			return []Finding{{
				Level: LevelError, Object: object("namespace", "", namespace.Name),
				Text:   fmt.Sprintf("has no label %s=false: pods of the manager wait for webhooks of the manager", appsv1alpha1.ControlLabelKey),
				Remedy: fmt.Sprintf("kubectl label namespace %s %s=false --overwrite", namespace.Name, appsv1alpha1.ControlLabelKey),
			}}
		}
	}
	return nil
}

func (in *inspection) breakGlass() []Finding {
	const key = appsv1alpha1.BreakGlassAnnotationKey
	var findings []Finding
	for _, namespace := range in.Namespaces {
		reason := namespace.Annotations[key]
		if reason == "" {
			continue
		}
		scope := "all pods of the namespace pass"
		if namespace.Name == in.Manager.Namespace {
			scope = "all pods of the cluster pass"
		}
		findings = append(findings, Finding{
			Level: LevelWarning, Object: object("namespace", "", namespace.Name),
			Text:   fmt.Sprintf("break-glass is set (%s): %s every PreCheck rule", text.Line(reason, maxReason), scope),
			Remedy: fmt.Sprintf("kubectl annotate namespace %s %s-", namespace.Name, key),
		})
	}
	return append(findings, in.perOwner(func(pod *corev1.Pod) *Finding {
		reason := pod.Annotations[key]
		if reason == "" {
			return nil
		}
		return &Finding{
			Level: LevelWarning, Text: fmt.Sprintf("break-glass is set (%s): the pod passes every PreCheck rule", text.Line(reason, maxReason)),
			Remedy: fmt.Sprintf("kubectl annotate pod -n %s %s %s-", pod.Namespace, pod.Name, key),
		}
	})...)
}

// maxReason bounds the text of a user in a finding.
const maxReason = 128

// age returns how long ago a time was, as kubectl prints ages.
func age(now, then time.Time) string { return duration.HumanDuration(now.Sub(then)) }
