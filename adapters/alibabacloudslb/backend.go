package alibabacloudslb

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// ServerType is the kind of a backend server, in the words of the API.
type ServerType string

// The server types of the API.
const (
	// ServerECS is a whole node: only pods on its network are told apart by it.
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
	// Description says whose the backend is, see descriptionOf.
	Description string
}

// Group is a vServer group without its backends.
type Group struct {
	ID   string
	Name string
}

// backendKey is what the API tells backends of one group apart by.
type backendKey struct {
	serverID, serverIP string
	port               int32
}

func (b Backend) key() backendKey {
	return backendKey{serverID: b.ServerID, serverIP: b.ServerIP, port: b.Port}
}

// wireBackend is a backend as the parameter BackendServers has it: numbers are strings.
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

const descriptionPrefix = "podops"

// descriptionOf marks a backend as added for a pod by a Service: podops/<uid of the
// Service>/<uid of the pod>, 80 characters, which is all that the API takes. UIDs and not
// names, so that another cluster with the same names never takes it for its own.
func descriptionOf(serviceUID, podUID string) string {
	return descriptionPrefix + "/" + serviceUID + "/" + podUID
}

// podUIDOf returns the pod for which the Service added the backend.
func podUIDOf(description, serviceUID string) (podUID string, ours bool) {
	podUID, ours = strings.CutPrefix(description, descriptionPrefix+"/"+serviceUID+"/")
	return podUID, ours && podUID != "" && serviceUID != ""
}
