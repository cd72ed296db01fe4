package sbom

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
)

var subject = Subject{Name: "podops-manager", Version: "v0.1.0", Licenses: "Apache-2.0", Date: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}

func TestABillHasEveryLinkedModule(t *testing.T) {
	bom := bill(&debug.BuildInfo{
		GoVersion: "go1.26.8", Path: "github.com/podops-dev/podops/cmd/manager",
		Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"}},
		Deps: []*debug.Module{
			{Path: "example.com/a", Version: "v1.2.3", Sum: "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="},
			{Path: "example.com/old", Version: "v2.0.0+incompatible"},
			{Path: "example.com/fork", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/ours", Version: "v1.0.1"}},
			{Path: "github.com/podops-dev/podops", Version: "v0.0.0", Replace: &debug.Module{Path: "../..", Version: "(devel)"}},
		},
	}, sha256.Sum256(nil), subject)
	var got []string
	for _, component := range *bom.Components {
		got = append(got, component.PackageURL)
	}
	want := []string{
		"pkg:golang/std@1.26.8", "pkg:golang/example.com/a@v1.2.3", "pkg:golang/example.com/old@v2.0.0%2Bincompatible",
		"pkg:golang/example.com/ours@v1.0.1", "pkg:golang/github.com/podops-dev/podops@v0.1.0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
	if hashes := (*bom.Components)[1].Hashes; hashes == nil || (*hashes)[0].Value != hex.EncodeToString(sha256.New().Sum(nil)) {
		t.Errorf("checksum of a module: %v", hashes)
	}
	if diff := cmp.Diff(want, *(*bom.Dependencies)[0].Dependencies); diff != "" {
		t.Errorf("dependencies (-want +got):\n%s", diff)
	}
}

// TestOfReadsABinary reads the bill of this test, of which the toolchain records the standard library only.
func TestOfReadsABinary(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first, err := Of(path, subject)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Of(path, subject)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("two bills of one binary differ")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(first), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if std := (*bom.Components)[0]; std.Name != "std" || "go"+std.Version != runtime.Version() {
		t.Errorf("the first component is %s %s", std.Name, std.Version)
	}
	if bom.SpecVersion != cdx.SpecVersion1_6 || bom.Metadata.Timestamp != "2026-11-20T10:00:00Z" || !strings.HasPrefix(bom.SerialNumber, "urn:uuid:") {
		t.Errorf("got version %s, time %s, number %s", bom.SpecVersion, bom.Metadata.Timestamp, bom.SerialNumber)
	}
}
