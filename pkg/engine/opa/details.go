package opa

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	imageref "github.com/distribution/reference"
	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// detailFields returns the fields of a pod in vet.DetailFields.
func detailFields(details rule.PodDetails) [][2]*ast.Term {
	images, resources := make([]*ast.Term, 0, len(details.Containers)), make([]*ast.Term, 0, len(details.Containers))
	for i := range details.Containers {
		c := &details.Containers[i]
		images = append(images, imageTerm(c.Name, c.Image))
		resources = append(resources, ast.ObjectTerm(
			named("container", ast.StringTerm(c.Name)),
			named("requests", quantitiesTerm(c.Resources.Requests)),
			named("limits", quantitiesTerm(c.Resources.Limits)),
		))
	}
	conditions := make([][2]*ast.Term, 0, len(details.Conditions))
	for i := range details.Conditions {
		c := &details.Conditions[i]
		conditions = append(conditions, [2]*ast.Term{ast.StringTerm(string(c.Type)), ast.ObjectTerm(
			named("status", ast.StringTerm(string(c.Status))),
			named("reason", ast.StringTerm(c.Reason)),
			named("since", timeTerm(c.LastTransitionTime.Time)),
		)})
	}
	return [][2]*ast.Term{
		named("images", ast.ArrayTerm(images...)),
		named("resources", ast.ArrayTerm(resources...)),
		named("restarts", ast.InternedTerm(details.Restarts)),
		named("conditions", ast.ObjectTerm(conditions...)),
		named("started", timeTerm(details.Started)),
		named("ready_since", timeTerm(details.ReadySince())),
	}
}

// errUnknownDetails is why there is no verdict on a pod that is too large to keep what it runs (docs/scale.md): a rule that
// finds no image to object to would let it pass.
var errUnknownDetails = errors.New("its containers are not known, and the module names a field that is made of them")

// withFacts returns the requests that a module can be evaluated for, and sets the verdicts of the others: what it reads of
// pods, the owner and the node must be known.
func (p *Program) withFacts(from rule.Environment, requests []rule.Request, verdicts map[string]rule.Verdict) []rule.Request {
	if !p.info.Needs.Details && !p.info.Needs.Owner && !p.info.Needs.Node {
		return requests
	}
	var other error // of all requests
	if p.info.Needs.Pods {
		for _, pod := range from.Pods {
			if other = p.unknownDetails(pod); other != nil {
				break
			}
		}
	}
	known := make([]rule.Request, 0, len(requests))
	for _, request := range requests {
		if err := cmp.Or(p.unknownDetails(request.Pod), other, p.unknownOwner(from, request.Pod.Owner), p.unknownNode(from, request.Pod.Node)); err != nil {
			verdicts[request.Key()] = p.failed(err)
			continue
		}
		known = append(known, request)
	}
	return known
}

func (p *Program) unknownDetails(pod *rule.PodFact) error {
	if p.info.Needs.Details && pod.Details.Unknown {
		return fmt.Errorf("pod %s: %w", pod.Name, errUnknownDetails)
	}
	return nil
}

func (p *Program) unknownOwner(from rule.Environment, owner rule.Owner) error {
	if _, counted := from.Workloads[owner.UID]; p.info.Needs.Owner && owner.UID != "" && !counted {
		return fmt.Errorf("the desired number of %s %s is not known, and the module reads input.owner", owner.Kind, owner.Name)
	}
	return nil
}

func (p *Program) unknownNode(from rule.Environment, name string) error {
	if p.info.Needs.Node && name != "" && from.Nodes[name] == nil {
		return fmt.Errorf("node %s is not known, and the module reads input.node", name)
	}
	return nil
}

// checkRecorded returns an error if a module reads what an input of a decision log does not have: it was recorded for a
// module that does not read it.
func checkRecorded(input ast.Value, needs Needs) error {
	lacks := func(path ...*ast.Term) bool {
		_, err := input.Find(path)
		return err != nil
	}
	switch {
	case needs.Details && lacks(fieldNames["pod"], fieldNames["images"]):
		return errors.New("the input was recorded without images, resources, restarts, conditions and times of pods, and the module reads one of them")
	case needs.Owner && lacks(fieldNames["owner"]):
		return errors.New("the input was recorded without input.owner, and the module reads it")
	case needs.Node && lacks(fieldNames["node"]):
		return errors.New("the input was recorded without input.node, and the module reads it")
	default:
		return nil
	}
}

// imageTerm returns the parts of an image as the kubelet reads it: docker.io and latest are added where they are meant. An
// image that is no reference has its text as repository, and nothing else.
func imageTerm(container, image string) *ast.Term {
	registry, repository, tag, digest := "", image, "", ""
	if named, err := imageref.ParseNormalizedNamed(image); err == nil {
		named = imageref.TagNameOnly(named)
		registry, repository = imageref.Domain(named), imageref.Path(named)
		if tagged, ok := named.(imageref.Tagged); ok {
			tag = tagged.Tag()
		}
		if digested, ok := named.(imageref.Digested); ok {
			digest = digested.Digest().String()
		}
	}
	return ast.ObjectTerm(
		named("container", ast.StringTerm(container)),
		named("registry", ast.StringTerm(registry)),
		named("repository", ast.StringTerm(repository)),
		named("tag", ast.StringTerm(tag)),
		named("digest", ast.StringTerm(digest)),
	)
}

// exactNumber returns a quantity as an exact number, without zeros at its end.
func exactNumber(quantity resource.Quantity) json.Number {
	text := quantity.AsDec().String()
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return json.Number(text)
}

// quantitiesTerm returns quantities by the names of their resources, each as an exact number and as it was written.
func quantitiesTerm(quantities corev1.ResourceList) *ast.Term {
	entries := make([][2]*ast.Term, 0, len(quantities))
	for name, quantity := range quantities {
		entries = append(entries, [2]*ast.Term{ast.StringTerm(string(name)), ast.ObjectTerm(
			named("value", ast.NumberTerm(exactNumber(quantity))),
			named("text", ast.StringTerm(quantity.String())),
		)})
	}
	return ast.ObjectTerm(entries...)
}
