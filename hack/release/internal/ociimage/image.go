// Package ociimage makes images of OCI that contain one static program, without a base image, and stores,
// reads and pushes them.
package ociimage

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/podops-dev/podops/hack/release/internal/build"
)

// user is the user and the group of the manifests: a user that no system has.
const user = "65532:65532"

// Binary is a program that was built for a platform.
type Binary struct {
	Platform build.Platform
	Path     string
}

// Description becomes labels of images and annotations of manifests.
type Description struct {
	Title, Text       string
	Source, Licenses  string
	Version, Revision string
	Created           time.Time
}

// labels returns the predefined annotation keys of OCI.
func (d Description) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       d.Title,
		"org.opencontainers.image.description": d.Text,
		"org.opencontainers.image.source":      d.Source,
		"org.opencontainers.image.licenses":    d.Licenses,
		"org.opencontainers.image.version":     d.Version,
		"org.opencontainers.image.revision":    d.Revision,
		"org.opencontainers.image.created":     d.Created.Format(time.RFC3339),
	}
}

// New returns an index with an image for each binary. The entry point is the program at the root, as user 65532.
// goroot is the folder of the Go toolchain.
func New(description Description, binaries []Binary, goroot string) (v1.ImageIndex, error) {
	files, err := systemFiles(goroot)
	if err != nil {
		return nil, err
	}
	system, err := layerOf(files)
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, binary := range binaries {
		content, err := os.ReadFile(binary.Path)
		if err != nil {
			return nil, fmt.Errorf("reading a program: %w", err)
		}
		program, err := layerOf([]file{{path: description.Title, mode: 0o555, content: content}})
		if err != nil {
			return nil, err
		}
		image, err := imageOf(description, binary.Platform, system, program)
		if err != nil {
			return nil, fmt.Errorf("making the image %s for %s: %w", description.Title, binary.Platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: binary.Platform.OS, Architecture: binary.Platform.Arch}},
		})
	}
	return mutate.Annotations(index, description.labels()).(v1.ImageIndex), nil
}

func layerOf(files []file) (v1.Layer, error) {
	packed, err := pack(files)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	return layer, nil
}

func imageOf(description Description, platform build.Platform, system, program v1.Layer) (v1.Image, error) {
	created := v1.Time{Time: description.Created}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Arch, Created: created,
		Config: v1.Config{User: user, WorkingDir: "/", Entrypoint: []string{"/" + description.Title}, Labels: description.labels()},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: system, MediaType: types.OCILayer, History: v1.History{Created: created, CreatedBy: "hack/release: certificates and time zones"}},
		mutate.Addendum{Layer: program, MediaType: types.OCILayer, History: v1.History{Created: created, CreatedBy: "hack/release: " + description.Title}},
	)
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, description.labels()).(v1.Image), nil
}
