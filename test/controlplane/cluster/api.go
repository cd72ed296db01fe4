package cluster

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"time"
)

// requestTimeout is short: the servers are on this machine, and requests are retried.
const requestTimeout = 5 * time.Second

// apiClient is a client of the API server as its administrator. It is a plain HTTP client
// so that this command builds in a second, without client-go.
type apiClient struct {
	server string
	http   *http.Client
}

// api returns a client with the administrator's certificate.
func (c config) api() (*apiClient, error) {
	data, err := os.ReadFile(c.file("kubeconfigs", "admin"))
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	certificate, err := clientCertificate(data)
	if err != nil {
		return nil, err
	}
	return &apiClient{
		server: c.server(),
		http: &http.Client{
			Timeout: requestTimeout,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{
				Certificates: []tls.Certificate{certificate},
				// The scheduler and the controller manager sign their own certificates; no
				// secret is sent to them.
				InsecureSkipVerify: true,
			}},
		},
	}, nil
}

var certificateData = regexp.MustCompile(`client-(certificate|key)-data: (\S+)`)

// clientCertificate parses the certificate in a kubeconfig that this package has written.
func clientCertificate(kubeconfig []byte) (tls.Certificate, error) {
	parts := map[string][]byte{}
	for _, match := range certificateData.FindAllSubmatch(kubeconfig, -1) {
		decoded, err := base64.StdEncoding.DecodeString(string(match[2]))
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("decoding the kubeconfig: %w", err)
		}
		parts[string(match[1])] = decoded
	}
	certificate, err := tls.X509KeyPair(parts["certificate"], parts["key"])
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading the certificate in the kubeconfig: %w", err)
	}
	return certificate, nil
}

// healthy returns nil when a GET of url answers with status 200.
func (a *apiClient) healthy(ctx context.Context, url string) error {
	_, err := a.get(ctx, url)
	return err
}

func (a *apiClient) get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("building a request: %w", err)
	}
	response, err := a.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %.200s", url, response.Status, body)
	}
	return body, nil
}

// nodeList is the part of a v1 NodeList that usable reads.
type nodeList struct {
	Items []struct {
		Metadata struct{ Name string }
		Spec     struct{ Taints []struct{ Key string } }
		Status   struct {
			Conditions []struct{ Type, Status string }
		}
	}
}

// usable returns nil when a Deployment that is created now would get running pods, else an
// error that names the missing part:
//
//   - every node is registered, ready and without a taint;
//   - the default service account exists, without which no pod is admitted;
//   - its namespace has the CA bundle that every pod mounts.
func (a *apiClient) usable(ctx context.Context, nodes int) error {
	body, err := a.get(ctx, a.server+"/api/v1/nodes")
	if err != nil {
		return err
	}
	var list nodeList
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("decoding the list of nodes: %w", err)
	}
	if err := list.usable(nodes); err != nil {
		return err
	}
	if err := a.healthy(ctx, a.server+"/api/v1/namespaces/default/serviceaccounts/default"); err != nil {
		return fmt.Errorf("waiting for the default service account: %w", err)
	}
	if err := a.healthy(ctx, a.server+"/api/v1/namespaces/default/configmaps/kube-root-ca.crt"); err != nil {
		return fmt.Errorf("waiting for the CA bundle: %w", err)
	}
	return nil
}

func (l nodeList) usable(nodes int) error {
	if len(l.Items) != nodes {
		return fmt.Errorf("%d of %d nodes are registered", len(l.Items), nodes)
	}
	for _, n := range l.Items {
		if len(n.Spec.Taints) > 0 {
			return fmt.Errorf("node %s has the taint %s", n.Metadata.Name, n.Spec.Taints[0].Key)
		}
		ready := false
		for _, c := range n.Status.Conditions {
			ready = ready || c.Type == "Ready" && c.Status == "True"
		}
		if !ready {
			return fmt.Errorf("node %s is not ready", n.Metadata.Name)
		}
	}
	return nil
}
