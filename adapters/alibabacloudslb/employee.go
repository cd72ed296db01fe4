package alibabacloudslb

import (
	"errors"
	"fmt"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// Traffic is what the load balancer sends to a pod.
type Traffic string

const (
	// TrafficOn: every vServer group of the Service sends it traffic.
	TrafficOn Traffic = "On"
	// TrafficOff: none does.
	TrafficOff Traffic = "Off"
	// TrafficPartial: on its way from one to the other. It equals nothing expected.
	TrafficPartial Traffic = "Partial"
)

// PodExtraStatus is what the load balancer says about a pod.
type PodExtraStatus struct {
	Traffic Traffic `json:"traffic"`
	// Weight is 0 without traffic, and in observed Services, where it is not ours.
	Weight int32 `json:"weight,omitempty"`
}

// PodStatus is a pod at the load balancer: an IEmployee. Its id is the UID of the pod,
// since addresses come late and come again.
type PodStatus struct {
	UID string
	// Name is the pod's; for a backend whose pod is gone, the UID, which no pod is called.
	Name     string
	Statuses resourceconsist.PodEmployeeStatuses
}

var _ resourceconsist.IEmployee = PodStatus{}

// GetEmployeeId returns the UID of the pod.
func (s PodStatus) GetEmployeeId() string { return s.UID } //nolint:revive // the name of the interface

// GetEmployeeName returns the name of the pod.
func (s PodStatus) GetEmployeeName() string { return s.Name }

// GetEmployeeStatuses returns a resourceconsist.PodEmployeeStatuses whose ExtraStatus is
// a PodExtraStatus.
func (s PodStatus) GetEmployeeStatuses() interface{} { return s.Statuses }

// EmployeeEqual reports whether both are the same pod with the same traffic. It fails for
// an employee of another adapter.
func (s PodStatus) EmployeeEqual(other resourceconsist.IEmployee) (bool, error) {
	mine, err := extraOf(s)
	if err != nil {
		return false, err
	}
	theirs, err := extraOf(other)
	if err != nil {
		return false, err
	}
	return s.GetEmployeeId() == other.GetEmployeeId() && mine == theirs && mine.Traffic != TrafficPartial, nil
}

func extraOf(employee resourceconsist.IEmployee) (PodExtraStatus, error) {
	if employee == nil {
		return PodExtraStatus{}, errors.New("comparing pods at the load balancer: there is no second one")
	}
	statuses, ok := employee.GetEmployeeStatuses().(resourceconsist.PodEmployeeStatuses)
	if !ok {
		return PodExtraStatus{}, fmt.Errorf("employee %s has statuses of type %T, and not of a pod", employee.GetEmployeeId(), employee.GetEmployeeStatuses())
	}
	extra, ok := statuses.ExtraStatus.(PodExtraStatus)
	if !ok {
		return PodExtraStatus{}, fmt.Errorf("employee %s has an extra status of type %T, and not of this adapter", employee.GetEmployeeId(), statuses.ExtraStatus)
	}
	return extra, nil
}
