package main

import (
	"errors"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// errNotSynced is the answer of /readyz until the caches are filled.
var errNotSynced = errors.New("the caches are not filled yet")

// synced is ready when the caches are filled. A replica that waits for the lease is ready, too.
func synced(mgr manager.Manager) healthz.Checker {
	return func(request *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(request.Context()) {
			return errNotSynced
		}
		return nil
	}
}
