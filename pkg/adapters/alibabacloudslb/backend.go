package alibabacloudslb

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// ServerType is the kind of a backend server, as the API names it.
type ServerType string

// The server types of the API.
const (
	// ServerECS is a whole node: it identifies only pods on its network.
	ServerECS ServerType = "ecs"
	// ServerENI is a network interface with the pod's address.
	ServerENI ServerType = "eni"
	// ServerECI is a container instance, which is one pod.
	ServerECI ServerType = "eci"
)

// MaxWeight is the largest weight of the API; 0 takes no new traffic.
const MaxWeight = 100

// Backend is a backend server of a vServer group.
type Backend struct {
	ServerID string
	// ServerIP is empty for nodes.
	ServerIP string
	Type     ServerType
	// Port is 0 in the default server group, whose listeners have the port.
	Port   int32
	Weight int32
	// Description identifies the owner of the backend, see serverDescription.
	Description string
}

// Group is a vServer group without its backends.
type Group struct {
	ID   string
	Name string
}

// backendKey identifies a backend within one group.
type backendKey struct {
	serverID, serverIP string
	port               int32
}

func (b Backend) key() backendKey {
	return backendKey{serverID: b.ServerID, serverIP: b.ServerIP, port: b.Port}
}

// wireBackend is a backend in the parameter BackendServers: numbers are strings.
type wireBackend struct {
	ServerID    string `json:"ServerId"`
	ServerIP    string `json:"ServerIp,omitempty"`
	Type        string `json:"Type,omitempty"`
	Port        string `json:"Port"`
	Weight      string `json:"Weight"`
	Description string `json:"Description,omitempty"`
}

func encodeBackends(backends []Backend) (string, error) {
	wire := make([]wireBackend, 0, len(backends))
	for _, b := range backends {
		wire = append(wire, wireBackend{
			ServerID:    b.ServerID,
			ServerIP:    b.ServerIP,
			Type:        string(b.Type),
			Port:        strconv.Itoa(int(b.Port)),
			Weight:      strconv.Itoa(int(b.Weight)),
			Description: b.Description,
		})
	}
	encoded, err := json.Marshal(wire)
	if err != nil {
		return "", fmt.Errorf("encoding %d backends: %w", len(backends), err)
	}
	return string(encoded), nil
}

const (
	descriptionPrefix = "podops"
	// maxDescription is the maximum length of a description in the API.
	maxDescription = 80
)

// shortID returns an id made from a UID, short enough for a description.
func shortID(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:8])
}

// serverDescription returns the description of a backend that a Service adds for a pod:
// podops/<id of the Service>/<id of the pod>/<name of the pod>. Ids come from UIDs, so that
// they differ in another cluster with the same names. The name is left out when it does not
// fit.
func serverDescription(serviceID, podID, podName string) string {
	description := strings.Join([]string{descriptionPrefix, serviceID, podID, podName}, "/")
	if len(description) > maxDescription {
		return strings.Join([]string{descriptionPrefix, serviceID, podID, ""}, "/")
	}
	return description
}

// parseDescription returns the pod for which the Service added the backend; the name is empty when it
// did not fit.
func parseDescription(description, serviceID string) (podID, podName string, ours bool) {
	parts := strings.Split(description, "/")
	if len(parts) != 4 || parts[0] != descriptionPrefix || parts[1] != serviceID || parts[2] == "" {
		return "", "", false
	}
	return parts[2], parts[3], true
}
