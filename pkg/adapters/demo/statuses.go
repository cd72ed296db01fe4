package demo

import (
	"fmt"
	"reflect"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// DemoServiceStatus is the expected or current item of a Service.
type DemoServiceStatus struct {
	EmployerId       string //nolint:staticcheck // the name is the manual's
	EmployerStatuses DemoServiceDetails
}

// DemoServiceDetails is a virtual address. RemoteVIPQPS is in requests per second.
type DemoServiceDetails struct {
	RemoteVIP    string
	RemoteVIPQPS int
}

// DemoPodStatus is the expected or current item of a pod: a real server. The ExtraStatus of
// its statuses is a PodExtraStatus.
type DemoPodStatus struct {
	EmployeeId       string //nolint:staticcheck // the name is the manual's
	EmployeeName     string
	EmployeeStatuses resourceconsist.PodEmployeeStatuses
}

// PodExtraStatus holds whether a real server takes traffic, and its share of it.
type PodExtraStatus struct {
	TrafficOn     bool
	TrafficWeight int
}

var (
	_ resourceconsist.IEmployer = DemoServiceStatus{}
	_ resourceconsist.IEmployee = DemoPodStatus{}
)

// GetEmployerId implements resourceconsist.IEmployer.
func (d DemoServiceStatus) GetEmployerId() string { return d.EmployerId } //nolint:staticcheck // the name is the interface's

// GetEmployerStatuses implements resourceconsist.IEmployer.
func (d DemoServiceStatus) GetEmployerStatuses() interface{} { return d.EmployerStatuses }

// EmployerEqual implements resourceconsist.IEmployer.
func (d DemoServiceStatus) EmployerEqual(employer resourceconsist.IEmployer) (bool, error) {
	other, ok := employer.(DemoServiceStatus)
	if !ok {
		return false, fmt.Errorf("comparing service %s: got a %T", d.EmployerId, employer)
	}
	return d == other, nil
}

// GetEmployeeId implements resourceconsist.IEmployee.
func (d DemoPodStatus) GetEmployeeId() string { return d.EmployeeId } //nolint:staticcheck // the name is the interface's

// GetEmployeeName implements resourceconsist.IEmployee.
func (d DemoPodStatus) GetEmployeeName() string { return d.EmployeeName }

// GetEmployeeStatuses implements resourceconsist.IEmployee.
func (d DemoPodStatus) GetEmployeeStatuses() interface{} { return d.EmployeeStatuses }

// EmployeeEqual implements resourceconsist.IEmployee: the same addresses, and traffic on or
// off in both. It compares all fields, since all of them matter to this provider.
func (d DemoPodStatus) EmployeeEqual(employee resourceconsist.IEmployee) (bool, error) {
	other, ok := employee.(DemoPodStatus)
	if !ok {
		return false, fmt.Errorf("comparing pod %s: got a %T", d.EmployeeName, employee)
	}
	return reflect.DeepEqual(d, other), nil
}
