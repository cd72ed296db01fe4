package certificates

import (
	"fmt"
	"net/url"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Address is where API servers find the webhooks: at the Service, or, for a manager
// that runs outside the cluster, at a URL.
type Address struct {
	// Namespace and Service name the Service.
	Namespace string
	Service   string

	// URL replaces the Service when it is set.
	URL *url.URL
}

// ParseAddress returns the address of the Service in the namespace, or of the URL when that is not
// empty. The URL must be https, as API servers require, and may have a path, which comes before the
// paths of the webhooks.
func ParseAddress(namespace, service, webhookURL string) (Address, error) {
	address := Address{Namespace: namespace, Service: service}
	if webhookURL == "" {
		return address, nil
	}
	parsed, err := url.Parse(webhookURL)
	switch {
	case err != nil:
		return Address{}, fmt.Errorf("parsing webhook URL: %w", err)
	case parsed.Scheme != "https" || parsed.Hostname() == "":
		return Address{}, fmt.Errorf("webhook URL %q: want https://<host>[:<port>]", webhookURL)
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		return Address{}, fmt.Errorf("webhook URL %q: user, query and fragment are not allowed", webhookURL)
	}
	address.URL = parsed
	return address, nil
}

// Names returns the names that the serving certificate must cover. The names of the Service are
// always included, so that a replica inside the cluster accepts the certificate of a replica
// outside. The one without a namespace is for readers of metrics, whose manifests are the same in
// every namespace.
func (a Address) Names() []string {
	names := []string{fmt.Sprintf("%s.%s.svc", a.Service, a.Namespace), a.Service}
	if a.URL != nil {
		names = append(names, a.URL.Hostname())
	}
	return names
}

// point sets the client configuration to the address. The path of the webhook stays, and so
// does a Service that is set already.
func (a Address) point(config *admissionregistrationv1.WebhookClientConfig) error {
	if a.URL != nil {
		path, err := webhookPath(*config)
		if err != nil {
			return err
		}
		target := strings.TrimSuffix(a.URL.String(), "/") + path
		config.URL, config.Service = &target, nil
		return nil
	}
	if config.Service != nil {
		return nil
	}
	path, err := webhookPath(*config)
	if err != nil {
		return err
	}
	config.Service = &admissionregistrationv1.ServiceReference{Namespace: a.Namespace, Name: a.Service, Path: &path}
	config.URL = nil
	return nil
}

// webhookPath returns the path of a webhook, addressed by Service or by URL. In a URL it is
// the last part: no path of PodOps has more than one part.
func webhookPath(config admissionregistrationv1.WebhookClientConfig) (string, error) {
	switch {
	case config.Service != nil && config.Service.Path != nil:
		return withoutToken(*config.Service.Path), nil
	case config.URL != nil:
		parsed, err := url.Parse(*config.URL)
		if err != nil {
			return "", fmt.Errorf("parsing the URL of a webhook: %w", err)
		}
		path := withoutToken(parsed.Path)
		return path[max(0, strings.LastIndex(path, "/")):], nil
	}
	return "", nil
}
