package podrelease

import (
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/config"
)

func TestReleaseRemovesAllAdmission(t *testing.T) {
	var want []string
	document := regexp.MustCompile(`(?m)^kind: ((?:Mutating|Validating)\w+)\nmetadata:\n  name: (\S+)$`)
	err := fs.WalkDir(config.Manifests, "webhook", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(config.Manifests, path)
		for _, match := range document.FindAllStringSubmatch(string(content), -1) {
			want = append(want, match[1]+" "+match[2])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range admission() {
		got = append(got, reflect.TypeOf(object).Elem().Name()+" "+object.GetName())
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects that are removed (-in config/webhook +removed):\n%s", diff)
	}
}
