package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/approvals"
)

const (
	// approvalRule is the rule that a user who has not written the revision must approve it, and reviewer is that user.
	approvalRule = manifests + "/approval.yaml"
	reviewer     = "reviewer"

	// readTimeout bounds a request to the page.
	readTimeout = 10 * time.Second
)

//go:embed page.html
var pageSource string

// page shows the rollout that waits for approval, and decides about it as the user reviewer.
type page struct {
	template *template.Template
	revision func(context.Context) (approvals.Revision, error)
	client   client.Client
	server   *http.Server
	address  string
}

// openPage serves the page on a free port. revision returns the revision that the Deployment has now.
func openPage(config *rest.Config, revision func(context.Context) (approvals.Revision, error)) (*page, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	acting := rest.CopyConfig(config)
	acting.Impersonate = rest.ImpersonationConfig{UserName: reviewer}
	c, err := client.New(acting, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", reviewer, err)
	}
	p := &page{template: template.Must(template.New("page").Parse(pageSource)), revision: revision, client: c}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /{$}", p.show)
	routes.HandleFunc("POST /decide", p.decide)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening the approval page: %w", err)
	}
	p.address = "http://" + listener.Addr().String() + "/"
	p.server = &http.Server{Handler: http.NewCrossOriginProtection().Handler(routes), ReadTimeout: readTimeout}
	go func() { _ = p.server.Serve(listener) }() // until close
	return p, nil
}

// close ends the page, if it was opened.
func (p *page) close(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.server.Shutdown(ctx)
}

// shownRevision is what the page shows of a revision.
type shownRevision struct {
	Title, Revision string
	Lines           []string
}

func (p *page) show(w http.ResponseWriter, r *http.Request) {
	var waiting []shownRevision
	found, err := p.revision(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if len(found.Changes) > 0 {
		waiting = append(waiting, shownRevision{Title: found.Title(), Revision: found.Facts.Revision, Lines: found.Lines(time.Now())})
	}
	if err := p.template.Execute(w, waiting); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// decide decides about the revision that the page has shown, and about no later revision.
func (p *page) decide(w http.ResponseWriter, r *http.Request) {
	found, err := p.revision(r.Context())
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	case found.Facts.Revision != r.FormValue("revision"):
		http.Error(w, "the pod template has changed", http.StatusConflict)
		return
	}
	made := found.NewDecision(appsv1alpha1.ApprovalDecision(r.FormValue("decision")), reviewer, "on the page of the demo")
	if err := p.client.Create(r.Context(), made); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// currentRevision returns the revision of the Deployment with the decisions about it.
func (r *rollout) currentRevision(ctx context.Context) (approvals.Revision, error) {
	snapshot, err := r.snapshot(ctx)
	if err != nil {
		return approvals.Revision{}, err
	}
	deployment := snapshot.Deployment("web")
	if deployment == nil {
		return approvals.Revision{}, errors.New("the Deployment web does not exist yet")
	}
	var decisions appsv1alpha1.PodOperationApprovalList
	if err := r.objects.List(ctx, &decisions, client.InNamespace(namespace)); err != nil {
		return approvals.Revision{}, fmt.Errorf("listing the decisions: %w", err)
	}
	var all []*appsv1alpha1.PodOperationApproval
	for i := range decisions.Items {
		all = append(all, &decisions.Items[i])
	}
	return approvals.New(snapshot, "Deployment", deployment, all, time.Now()), nil
}

// writeApproval writes an approval of the revision into a file of the folder.
func (r *rollout) writeApproval(ctx context.Context) (file string, err error) {
	found, err := r.currentRevision(ctx)
	if err != nil {
		return "", err
	}
	text, err := yaml.Marshal(found.NewDecision(appsv1alpha1.ApprovalApprove, "", "it was tested"))
	if err != nil {
		return "", fmt.Errorf("encoding the approval: %w", err)
	}
	file = filepath.Join(r.stage.Dir(), "approval.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", fmt.Errorf("writing the approval: %w", err)
	}
	return file, nil
}

// checkApproved returns an error unless the status of the rule has the revision, with the user who has approved it.
func (r *rollout) checkApproved(ctx context.Context) error {
	rule := &appsv1alpha1.PodTransitionRule{}
	if err := r.objects.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "person"}, rule); err != nil {
		return fmt.Errorf("reading the approval rule: %w", err)
	}
	for _, status := range rule.Status.Rules {
		for _, approved := range status.LastApprovals {
			if len(approved.ApprovedBy) == 1 && approved.ApprovedBy[0] == reviewer {
				return nil
			}
		}
	}
	return errors.New("pods were replaced, and the status of the rule does not name the user who has approved it")
}
