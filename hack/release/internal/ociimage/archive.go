package ociimage

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/podops-dev/podops/hack/release/internal/build"
)

// Keys of annotations in an OCI layout. containerd and podman read the name of an image from the first, other
// programs from the second.
const (
	nameKey    = "io.containerd.image.name"
	refNameKey = "org.opencontainers.image.ref.name"
)

// WriteArchive writes an index as an archive of an OCI layout, as podman load, ctr images import and kind load
// image-archive read it. The name of the image is that of the tag.
func WriteArchive(path string, index v1.ImageIndex, tag name.Tag) error {
	dir, err := os.MkdirTemp("", "podops-image-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	// The layout has one entry, the index, which keeps its digest.
	stored, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("writing a layout: %w", err)
	}
	if err := stored.AppendIndex(index, layout.WithAnnotations(map[string]string{nameKey: tag.Name(), refNameKey: tag.TagStr()})); err != nil {
		return fmt.Errorf("storing %s: %w", tag, err)
	}
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	if err := errors.Join(packFolder(out, dir), out.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// packFolder writes the files of a folder by name. They belong to root and have the time 0.
func packFolder(out io.Writer, dir string) error {
	archive := tar.NewWriter(out)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		inside = filepath.ToSlash(inside)
		if entry.IsDir() {
			return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: inside + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: inside, Mode: 0o644, Size: info.Size(), ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		content, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(archive, content)
		return errors.Join(err, content.Close())
	})
	return errors.Join(err, archive.Close())
}

// Stored is an image in an archive.
type Stored struct {
	Tag   name.Tag
	Index v1.ImageIndex
	dir   string
}

// Open unpacks an archive that WriteArchive wrote into a temporary folder, which Close removes.
func Open(path string) (*Stored, error) {
	dir, err := os.MkdirTemp("", "podops-image-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	s, err := open(path, dir)
	if err != nil {
		_ = os.RemoveAll(dir) // the first error is the cause
		return nil, fmt.Errorf("reading the image %s: %w", path, err)
	}
	return s, nil
}

// Close removes the temporary folder.
func (s *Stored) Close() error { return os.RemoveAll(s.dir) }

func open(path, dir string) (*Stored, error) {
	packed, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = packed.Close() }() // the file was only read
	if err := unpack(packed, dir); err != nil {
		return nil, err
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("it has %d images, want 1", len(manifest.Manifests))
	}
	entry := manifest.Manifests[0]
	tag, err := name.NewTag(entry.Annotations[nameKey], name.StrictValidation)
	if err != nil {
		return nil, err
	}
	index, err := all.ImageIndex(entry.Digest)
	if err != nil {
		return nil, err
	}
	return &Stored{Tag: tag, Index: index, dir: dir}, nil
}

// Unpack writes the image for a platform into a folder, which must be empty: its file system into files, its user
// and its entry point, a path, into files of these names.
func (s *Stored) Unpack(platform build.Platform, dir string) error {
	image, err := s.imageFor(platform)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("reading the configuration of the image: %w", err)
	}
	if len(config.Config.Entrypoint) != 1 {
		return fmt.Errorf("entry point %q, want a path", config.Config.Entrypoint)
	}
	files := filepath.Join(dir, "files")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	packed := mutate.Extract(image)
	return errors.Join(
		unpack(packed, files), packed.Close(),
		os.WriteFile(filepath.Join(dir, "user"), []byte(config.Config.User), 0o644),
		os.WriteFile(filepath.Join(dir, "entrypoint"), []byte(config.Config.Entrypoint[0]), 0o644),
	)
}

// imageFor returns the image for a platform.
func (s *Stored) imageFor(platform build.Platform) (v1.Image, error) {
	manifest, err := s.Index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the index: %w", err)
	}
	for _, entry := range manifest.Manifests {
		if entry.Platform == nil || entry.Platform.OS != platform.OS || entry.Platform.Architecture != platform.Arch {
			continue
		}
		image, err := s.Index.Image(entry.Digest)
		if err != nil {
			return nil, fmt.Errorf("reading the image: %w", err)
		}
		return image, nil
	}
	return nil, fmt.Errorf("%s has no image for %s", s.Tag, platform)
}

// unpack unpacks the folders and files of an archive.
func unpack(packed io.Reader, dir string) error {
	root, err := os.OpenRoot(dir) // no entry leaves the folder
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it has no content of its own
	archive := tar.NewReader(packed)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(filepath.FromSlash(header.Name))
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			err = unpackFile(root, name, header.FileInfo().Mode().Perm(), archive)
		default:
			err = fmt.Errorf("%s has type %q", header.Name, header.Typeflag)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
