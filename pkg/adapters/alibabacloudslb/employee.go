package alibabacloudslb

import (
	"errors"
	"fmt"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// Traffic is the state of a pod's traffic at the load balancer.
type Traffic string

const (
	// TrafficOn means that every vServer group of the Service sends it traffic.
	TrafficOn Traffic = "On"
	// TrafficOff means that no group sends it traffic.
	TrafficOff Traffic = "Off"
	// TrafficPartial means that it is changing. It is never expected.
	TrafficPartial Traffic = "Partial"
)

// PodExtraStatus is the state of a pod at the load balancer.
type PodExtraStatus struct {
	Traffic Traffic `json:"traffic"`
	// Weight is 0 without traffic, and in observed Services, where the adapter does not set
	// it.
	Weight int32 `json:"weight,omitempty"`
}

// PodStatus is a pod at the load balancer: an IEmployee.
type PodStatus struct {
	// ID comes from the UID of the pod: addresses are assigned late, and reused.
	ID string
	// Name is the pod's name; empty for a backend of a deleted pod whose description has no
	// name.
	Name     string
	Statuses resourceconsist.PodEmployeeStatuses
}

var _ resourceconsist.IEmployee = PodStatus{}

// GetEmployeeId returns ID.
func (s PodStatus) GetEmployeeId() string { return s.ID } //nolint:staticcheck // the name of the interface

// GetEmployeeName returns Name.
func (s PodStatus) GetEmployeeName() string { return s.Name }

// GetEmployeeStatuses returns a resourceconsist.PodEmployeeStatuses whose ExtraStatus is
// a PodExtraStatus.
func (s PodStatus) GetEmployeeStatuses() interface{} { return s.Statuses }

// EmployeeEqual reports whether both are the same pod with the same traffic. It fails for
// an employee of another adapter.
func (s PodStatus) EmployeeEqual(other resourceconsist.IEmployee) (bool, error) {
	mine, err := extraStatus(s)
	if err != nil {
		return false, err
	}
	theirs, err := extraStatus(other)
	if err != nil {
		return false, err
	}
	return s.GetEmployeeId() == other.GetEmployeeId() && mine == theirs, nil
}

func extraStatus(employee resourceconsist.IEmployee) (PodExtraStatus, error) {
	if employee == nil {
		return PodExtraStatus{}, errors.New("comparing pods at the load balancer: the second pod is nil")
	}
	statuses, ok := employee.GetEmployeeStatuses().(resourceconsist.PodEmployeeStatuses)
	if !ok {
		return PodExtraStatus{}, fmt.Errorf("employee %s has statuses of type %T, not of a pod", employee.GetEmployeeId(), employee.GetEmployeeStatuses())
	}
	extra, ok := statuses.ExtraStatus.(PodExtraStatus)
	if !ok {
		return PodExtraStatus{}, fmt.Errorf("employee %s has an extra status of type %T, not of this adapter", employee.GetEmployeeId(), statuses.ExtraStatus)
	}
	return extra, nil
}
