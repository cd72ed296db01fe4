package main

import (
	"context"
	"fmt"
	"path/filepath"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// leaseSeconds is longer than any test.
const leaseSeconds = 4 * 3600

// startStandby starts a replica of the operator that serves the hook and never leads: its Lease belongs to the operators that
// lead, which do not renew it, so that each leads at once.
func (s *show) startStandby(ctx context.Context) error {
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "kvstore-operator"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("another replica"), LeaseDurationSeconds: ptr.To(int32(leaseSeconds)), AcquireTime: &now, RenewTime: &now,
		},
	}
	if err := s.admin.Create(ctx, lease); err != nil {
		return fmt.Errorf("creating the Lease of the operator: %w", err)
	}
	kubeconfig := filepath.Join(s.dir, "standby.kubeconfig")
	if err := s.writeKubeconfig(ctx, kubeconfig); err != nil {
		return err
	}
	var err error
	if s.standby, err = s.launch(kubeconfig, standbyLog, false, append(s.hookFlags(), "--leader-elect")...); err != nil {
		return err
	}
	return s.standby.AwaitReady(ctx)
}
