package alibabacloudslb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// maxNamed bounds the pods that the error of a verb names.
const maxNamed = 10

func (a *Adapter) currentManaged(
	ctx context.Context, service *corev1.Service, settings Settings, members []member,
) ([]resourceconsist.IEmployee, error) {
	byID, err := a.registered(ctx, service, settings, members)
	if err != nil {
		return nil, err
	}
	open := expectsPods(service, settings)
	var current []resourceconsist.IEmployee
	for _, m := range members {
		extra := managedTraffic(byID[m.id], settings)
		if byID[m.id] != nil || open && m.selected && m.expected(settings) == extra {
			current = append(current, m.status(extra))
		}
		delete(byID, m.id)
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		statuses := resourceconsist.PodEmployeeStatuses{ExtraStatus: managedTraffic(byID[id], settings)}
		current = append(current, PodStatus{ID: id, Name: byID[id].name, Statuses: statuses})
	}
	return current, nil
}

func (a *Adapter) registered(
	ctx context.Context, service *corev1.Service, settings Settings, members []member,
) (map[string]*registration, error) {
	groups := map[string][]Backend{}
	for _, id := range settings.groupIDs() {
		backends, err := a.api.Group(ctx, id)
		switch {
		case err == nil:
			groups[id] = backends
		case isGroupMissing(err) && !settings.namesGroup(id):
			// A former group that does not exist has no backends.
		default:
			return nil, fmt.Errorf("service %s/%s: %w", service.Namespace, service.Name, err)
		}
	}
	return registrations(shortID(service.UID), settings, members, groups), nil
}

// change carries out edits for employees of a managed Service, and returns the employees that
// succeeded and the employees that failed.
func (a *Adapter) change(
	ctx context.Context, employer client.Object, employees []resourceconsist.IEmployee,
	edits func(view, []resourceconsist.IEmployee) ([]edit, map[string]error),
) (succeeded, failed []resourceconsist.IEmployee, err error) {
	service, settings, err := readSettings(employer)
	if err != nil {
		return nil, employees, err
	}
	if !settings.Managed || len(employees) == 0 {
		return employees, nil, nil
	}
	v, err := a.view(ctx, service, settings)
	if err != nil {
		return nil, employees, err
	}
	todo, errs := edits(v, employees)
	if slices.ContainsFunc(todo, func(e edit) bool { return e.verb == verbAdd }) {
		if err := a.recordGroups(ctx, service, settings); err != nil {
			return nil, employees, err
		}
	}
	for id, err := range carryOut(ctx, a.api, todo) {
		errs[id] = errors.Join(errs[id], err)
	}
	for _, employee := range employees {
		if errs[employee.GetEmployeeId()] != nil {
			failed = append(failed, employee)
		} else {
			succeeded = append(succeeded, employee)
		}
	}
	return succeeded, failed, named(failed, errs)
}

// view holds the inputs of the verbs.
type view struct {
	serviceID string
	settings  Settings
	members   []member
	byID      map[string]*registration
}

func (a *Adapter) view(ctx context.Context, service *corev1.Service, settings Settings) (view, error) {
	members, err := a.members(ctx, service)
	if err != nil {
		return view{}, err
	}
	byID, err := a.registered(ctx, service, settings, members)
	if err != nil {
		return view{}, err
	}
	return view{serviceID: shortID(service.UID), settings: settings, members: members, byID: byID}, nil
}

func (a *Adapter) reach(v view, employees []resourceconsist.IEmployee) ([]edit, map[string]error) {
	var edits []edit
	errs := map[string]error{}
	for _, employee := range employees {
		id := employee.GetEmployeeId()
		want, err := extraStatus(employee)
		if err != nil {
			errs[id] = err
			continue
		}
		at := slices.IndexFunc(v.members, func(m member) bool { return m.id == id })
		if at < 0 {
			errs[id] = errors.New("it no longer exists")
			continue
		}
		more, err := editsToReach(want, v.members[at], v.byID[id], v.serviceID, v.settings)
		if err != nil {
			errs[id] = err
			continue
		}
		edits = append(edits, more...)
	}
	return edits, errs
}

func (a *Adapter) leave(v view, employees []resourceconsist.IEmployee) ([]edit, map[string]error) {
	var edits []edit
	for _, employee := range employees {
		id := employee.GetEmployeeId()
		edits = append(edits, editsToLeave(id, v.byID[id], v.settings)...)
	}
	return edits, map[string]error{}
}

// recordGroups records a group in an annotation of the Service before the first pod is
// added to it, so that pods are removed from it later.
func (a *Adapter) recordGroups(ctx context.Context, service *corev1.Service, settings Settings) error {
	if !settings.unrecorded() {
		return nil
	}
	ids := settings.groupIDs()
	if len(ids) > maxGroups {
		return fmt.Errorf("service %s/%s has used more than %d vServer groups: remove the groups without its pods from annotation %s",
			service.Namespace, service.Name, maxGroups, UsedGroupsAnnotationKey)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{UsedGroupsAnnotationKey: strings.Join(ids, ",")},
	}})
	if err != nil {
		return fmt.Errorf("encoding the groups of Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	target := &corev1.Service{}
	target.Namespace, target.Name = service.Namespace, service.Name
	if err := a.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("recording the vServer groups of Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return nil
}

// named joins the errors of pods into an error that names the pods.
func named(failed []resourceconsist.IEmployee, errs map[string]error) error {
	var all []error
	for i, employee := range failed {
		if i == maxNamed {
			all = append(all, fmt.Errorf("and %d more pods", len(failed)-maxNamed))
			break
		}
		all = append(all, fmt.Errorf("pod %s: %w", cmp.Or(employee.GetEmployeeName(), employee.GetEmployeeId()), errs[employee.GetEmployeeId()]))
	}
	return errors.Join(all...)
}
