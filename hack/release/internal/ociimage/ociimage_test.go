package ociimage_test

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/podops-dev/podops/hack/release/internal/build"
	"github.com/podops-dev/podops/hack/release/internal/ociimage"
)

var amd64, arm64 = build.Platform{OS: "linux", Arch: "amd64"}, build.Platform{OS: "linux", Arch: "arm64"}

// newImage returns an image of two platforms. Its programs are texts.
func newImage(t *testing.T) v1.ImageIndex {
	t.Helper()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var binaries []ociimage.Binary
	for _, platform := range []build.Platform{amd64, arm64} {
		path := filepath.Join(dir, platform.Arch)
		if err := os.WriteFile(path, []byte("program for "+platform.Arch), 0o600); err != nil {
			t.Fatal(err)
		}
		binaries = append(binaries, ociimage.Binary{Platform: platform, Path: path})
	}
	index, err := ociimage.New(ociimage.Description{
		Title: "manager", Text: "A manager", Source: "https://example.com/podops", Licenses: "Apache-2.0",
		Version: "v0.1.0", Revision: "033ec47", Created: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
	}, binaries, strings.TrimSpace(string(goroot)))
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// image returns the image of a platform.
func image(t *testing.T, index v1.ImageIndex, platform build.Platform) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range manifest.Manifests {
		if entry.Platform.Architecture == platform.Arch {
			found, err := index.Image(entry.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
	}
	t.Fatalf("no image for %s", platform)
	return nil
}

// files returns the files of an image by path, and their modes.
func files(t *testing.T, image v1.Image) (contents map[string][]byte, modes map[string]int64) {
	t.Helper()
	contents, modes = map[string][]byte{}, map[string]int64{}
	packed := mutate.Extract(image)
	defer packed.Close()
	archive := tar.NewReader(packed)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return contents, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Mode&0o222 != 0 {
			t.Errorf("%s is owned by %d:%d with mode %o: a user other than root could write it", header.Name, header.Uid, header.Gid, header.Mode)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		contents[header.Name], modes[header.Name] = content, header.Mode
	}
}

func TestAnImageRunsOneProgramAsAUserWithoutRights(t *testing.T) {
	index := newImage(t)
	for _, platform := range []build.Platform{amd64, arm64} {
		config, err := image(t, index, platform).ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		got := []string{config.OS, config.Architecture, config.Config.User, strings.Join(config.Config.Entrypoint, " ")}
		if diff := cmp.Diff([]string{"linux", platform.Arch, "65532:65532", "/manager"}, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", platform, diff)
		}
		contents, modes := files(t, image(t, index, platform))
		if string(contents["manager"]) != "program for "+platform.Arch || modes["manager"] != 0o555 {
			t.Errorf("%s: the program is %q with mode %o", platform, contents["manager"], modes["manager"])
		}
	}
}

func TestAnImageHasCertificatesAndTimeZones(t *testing.T) {
	contents, _ := files(t, image(t, newImage(t), amd64))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(contents["etc/ssl/certs/ca-certificates.crt"]) || bytes.Count(contents["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERT")) < 50 {
		t.Error("there are no certificate authorities")
	}
	zone, err := time.LoadLocationFromTZData("Europe/Berlin", contents["usr/share/zoneinfo/Europe/Berlin"])
	if err != nil {
		t.Fatal(err)
	}
	if _, offset := time.Date(2026, 7, 1, 0, 0, 0, 0, zone).Zone(); offset != 2*60*60 {
		t.Errorf("the offset of Berlin in summer is %d s", offset)
	}
}

func TestLabelsAreAnnotationsToo(t *testing.T) {
	index := newImage(t)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	config, err := image(t, index, amd64).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"org.opencontainers.image.title": "manager", "org.opencontainers.image.description": "A manager",
		"org.opencontainers.image.source": "https://example.com/podops", "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.version": "v0.1.0", "org.opencontainers.image.revision": "033ec47",
		"org.opencontainers.image.created": "2026-11-20T10:00:00Z",
	}
	if diff := cmp.Diff(want, config.Config.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, manifest.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if want := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC); !config.Created.Equal(want) {
		t.Errorf("created %s", config.Created)
	}
}

// archive writes an image, and returns the path.
func archive(t *testing.T, tag string) string {
	t.Helper()
	parsed, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := ociimage.WriteArchive(path, newImage(t), parsed); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestArchivesOfOneImageAreEqual(t *testing.T) {
	const tag = "registry.example/podops-manager:v0.1.0"
	first, second := archive(t, tag), archive(t, tag)
	contents := map[string][]byte{}
	for _, path := range []string{first, second} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		contents[path] = content
	}
	if !bytes.Equal(contents[first], contents[second]) {
		t.Error("two archives of equal images differ")
	}
}

func TestAnArchiveKeepsNameAndDigest(t *testing.T) {
	const tag = "registry.example/podops-manager:v0.1.0"
	want, err := newImage(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	stored, err := ociimage.Open(archive(t, tag))
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	if err := validate.Index(stored.Index); err != nil {
		t.Error(err)
	}
	got, err := stored.Index.Digest()
	if err != nil || got != want || stored.Tag.Name() != tag {
		t.Errorf("got %s@%s, %v; want %s@%s", stored.Tag, got, err, tag, want)
	}
}

func TestAnImageIsUnpackedForItsPlatform(t *testing.T) {
	stored, err := ociimage.Open(archive(t, "registry.example/podops-manager:v0.1.0"))
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	dir := t.TempDir()
	if err := stored.Unpack(arm64, dir); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"files/manager": "program for arm64", "user": "65532:65532", "entrypoint": "/manager"} {
		if content, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(content) != want {
			t.Errorf("%s: got %q, %v; want %q", path, content, err, want)
		}
	}
	if err := stored.Unpack(build.Platform{OS: "linux", Arch: "riscv64"}, t.TempDir()); err == nil {
		t.Error("a platform that the image does not have is no error")
	}
}

func TestAPushedImageHasTheDigestOfTheArchive(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	tag := strings.TrimPrefix(server.URL, "http://") + "/podops/podops-manager:v0.1.0"
	pushed, err := ociimage.Push(t.Context(), archive(t, tag))
	if err != nil {
		t.Fatal(err)
	}
	want, err := newImage(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	if pushed.DigestStr() != want.String() {
		t.Errorf("pushed %s, want %s", pushed, want)
	}
	pulled, err := remote.Index(pushed)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(pulled); err != nil {
		t.Error(err)
	}
}

func TestAPushWithoutARegistryIsAnError(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	tag := strings.TrimPrefix(server.URL, "http://") + "/podops/podops-manager:v0.1.0"
	server.Close()
	if _, err := ociimage.Push(t.Context(), archive(t, tag)); err == nil || !strings.Contains(err.Error(), tag) {
		t.Errorf("got %v, want an error that names the image", err)
	}
}
