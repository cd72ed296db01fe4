package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/podops-dev/podops/hack/release/internal/build"
	"github.com/podops-dev/podops/hack/release/internal/dist"
	"github.com/podops-dev/podops/hack/release/internal/ociimage"
	"github.com/podops-dev/podops/hack/release/internal/sbom"
	"github.com/podops-dev/podops/hack/release/internal/source"
)

// imagesOnly builds the images of a working tree.
func imagesOnly(ctx context.Context, s settings, platforms []build.Platform, out io.Writer) error {
	if s.version != "" {
		if err := source.CheckVersion(s.version); err != nil {
			return err
		}
	}
	tree, err := source.Read(ctx, s.root, s.version)
	if err != nil {
		return err
	}
	return write(s.out, func(dir string) (dist.Index, error) {
		r, err := newRelease(ctx, tree, s.registry, dir, platforms, out)
		if err != nil {
			return dist.Index{}, err
		}
		err = r.images(ctx)
		return r.index, err
	})
}

// everything builds a whole release.
func everything(ctx context.Context, s settings, platforms []build.Platform, out io.Writer) error {
	if err := source.CheckVersion(s.version); err != nil {
		return err
	}
	tree, err := source.Read(ctx, s.root, s.version)
	if err != nil {
		return err
	}
	if err := tree.CheckClean(); err != nil && !s.allowDirty {
		return err
	}
	return write(s.out, func(dir string) (dist.Index, error) {
		r, err := newRelease(ctx, tree, s.registry, dir, platforms, out)
		if err != nil {
			return dist.Index{}, err
		}
		// What needs no compiler fails first.
		err = r.changelog()
		for _, step := range []func(context.Context) error{r.images, r.plugins, r.manifest, r.chart} {
			if err == nil {
				err = step(ctx)
			}
		}
		return r.index, err
	})
}

// write writes a release into a new folder, which replaces the earlier one when it is complete.
func write(to string, fill func(dir string) (dist.Index, error)) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return fmt.Errorf("resolving the folder: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+".")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // it was moved, or is incomplete
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder readable: %w", err)
	}
	index, err := fill(dir)
	if err != nil {
		return err
	}
	if err := dist.WriteIndex(dir, index); err != nil {
		return err
	}
	return dist.Replace(dir, to)
}

// release is a release that is being built in a folder.
type release struct {
	tree      source.Source
	registry  string
	dir       string
	platforms []build.Platform // nil: all
	out       io.Writer
	goroot    string
	index     dist.Index
}

func newRelease(ctx context.Context, tree source.Source, registry, dir string, platforms []build.Platform, out io.Writer) (*release, error) {
	goroot, err := toolchain(ctx, "GOROOT")
	if err != nil {
		return nil, err
	}
	version, err := toolchain(ctx, "GOVERSION")
	if err != nil {
		return nil, err
	}
	return &release{
		tree: tree, registry: registry, dir: dir, platforms: platforms, out: out, goroot: goroot,
		index: dist.Index{Version: tree.Version, Commit: tree.Commit, Date: tree.Date, GoVersion: version},
	}, nil
}

// toolchain returns a setting of the Go toolchain that builds the programs.
func toolchain(ctx context.Context, variable string) (string, error) {
	value, err := exec.CommandContext(ctx, "go", "env", variable).Output()
	if err != nil {
		return "", fmt.Errorf("go env %s: %w", variable, err)
	}
	return strings.TrimSpace(string(value)), nil
}

// builder returns a builder of programs that have the version. It keeps binaries, so that a second release links
// only what has changed.
func (r *release) builder(variables map[string]string) build.Builder {
	const pkg = module + "/pkg/runtime/buildinfo."
	all := map[string]string{pkg + "version": r.tree.Version, pkg + "commit": r.tree.Commit, pkg + "date": r.tree.Date.Format("2006-01-02T15:04:05Z")}
	maps.Copy(all, variables)
	return build.Builder{Root: r.tree.Dir, Out: filepath.Join(r.tree.Dir, "bin", "release"), Variables: all}
}

// wanted returns the platforms of the release among some.
func (r *release) wanted(all []build.Platform) []build.Platform {
	return slices.DeleteFunc(all, func(p build.Platform) bool { return r.platforms != nil && !slices.Contains(r.platforms, p) })
}

// images builds the images and their bills of materials.
func (r *release) images(ctx context.Context) error {
	for _, program := range imagePrograms() {
		image, err := r.image(ctx, program)
		if err != nil {
			return err
		}
		r.index.Images = append(r.index.Images, image)
		fmt.Fprintf(r.out, "%s\n  %s\n", image.Reference(), image.File)
	}
	return nil
}

func (r *release) image(ctx context.Context, program imageProgram) (dist.Image, error) {
	tag, err := name.NewTag(r.registry+"/"+program.image+":"+r.tree.Version, name.StrictValidation)
	if err != nil {
		return dist.Image{}, fmt.Errorf("name of the image %s: %w", program.image, err)
	}
	image := dist.Image{Name: tag.Name(), File: program.image + ".tar", SBOMs: map[string]string{}}
	var binaries []ociimage.Binary
	for _, platform := range r.wanted(imagePlatforms()) {
		path, err := r.builder(nil).Build(ctx, program.Program, platform)
		if err != nil {
			return dist.Image{}, err
		}
		binaries = append(binaries, ociimage.Binary{Platform: platform, Path: path})
		image.Platforms = append(image.Platforms, platform.String())
		if image.SBOMs[platform.String()], err = r.bill(program.image, path, platform); err != nil {
			return dist.Image{}, err
		}
	}
	if len(binaries) == 0 {
		return dist.Image{}, errors.New("images need a platform of Linux: linux/amd64 or linux/arm64")
	}
	index, err := ociimage.New(ociimage.Description{
		Title: program.Name, Text: program.text, Source: website, Licenses: license,
		Version: r.tree.Version, Revision: r.tree.Commit, Created: r.tree.Date,
	}, binaries, r.goroot)
	if err != nil {
		return dist.Image{}, err
	}
	digest, err := index.Digest()
	if err != nil {
		return dist.Image{}, fmt.Errorf("computing the digest of %s: %w", tag, err)
	}
	image.Digest = digest.String()
	return image, ociimage.WriteArchive(filepath.Join(r.dir, image.File), index, tag)
}

// bill writes the bill of materials of a binary, and returns its path in the release.
func (r *release) bill(program, binary string, platform build.Platform) (string, error) {
	bill, err := sbom.Of(binary, sbom.Subject{Name: program, Version: r.tree.Version, Licenses: license, Date: r.tree.Date})
	if err != nil {
		return "", err
	}
	path := program + "_" + platform.OS + "_" + platform.Arch + ".cdx.json"
	return path, r.file(path, bill)
}

// plugins builds the archives of the plugin, and its manifest for krew if no platform is left out. The plugin
// installs the image of its release.
func (r *release) plugins(ctx context.Context) error {
	licenseText, err := os.ReadFile(filepath.Join(r.tree.Dir, "LICENSE"))
	if err != nil {
		return fmt.Errorf("reading the license: %w", err)
	}
	sums := map[string]string{}
	for _, platform := range r.wanted(pluginPlatforms()) {
		binary, err := r.plugin(ctx, platform)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			return fmt.Errorf("reading a program: %w", err)
		}
		path := "kubectl-podops_" + platform.OS + "_" + platform.Arch + ".tar.gz"
		if platform.OS == "windows" {
			path = strings.TrimSuffix(path, ".tar.gz") + ".zip"
		}
		archive, err := dist.Pack(path, []dist.Entry{
			{Name: filepath.Base(binary), Content: content, Executable: true}, {Name: "LICENSE", Content: licenseText},
		}, r.tree.Date)
		if err != nil {
			return err
		}
		if err := r.file(path, archive); err != nil {
			return err
		}
		if _, err := r.bill("kubectl-podops", binary, platform); err != nil {
			return err
		}
		sums[platform.String()] = dist.Sum(archive)
		fmt.Fprintln(r.out, path)
	}
	if r.platforms != nil {
		fmt.Fprintln(r.out, "no manifest for krew: platforms are left out")
		return nil
	}
	return r.krew(sums)
}

func (r *release) plugin(ctx context.Context, platform build.Platform) (string, error) {
	manager := r.index.Images[0].Reference()
	return r.builder(map[string]string{module + "/cmd/kubectl-podops/internal/installation.releaseImage": manager}).Build(ctx, plugin(), platform)
}

func (r *release) krew(sums map[string]string) error {
	template, err := os.ReadFile(filepath.Join(r.tree.Dir, "cmd", "kubectl-podops", "plugins", "podops.yaml"))
	if err != nil {
		return fmt.Errorf("reading the template of the manifest for krew: %w", err)
	}
	manifest, err := dist.Krew(string(template), r.tree.Version, sums)
	if err != nil {
		return err
	}
	return r.file("podops.yaml", []byte(manifest))
}

// manifest writes install.yaml: what the plugin of this release installs.
func (r *release) manifest(ctx context.Context) error {
	plugin, err := r.plugin(ctx, build.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH})
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, plugin, "install", "--dry-run")
	var complaint strings.Builder
	command.Stderr = &complaint
	objects, err := command.Output()
	if err != nil {
		return fmt.Errorf("building install.yaml: %w: %s", err, complaint.String())
	}
	header := fmt.Sprintf("# PodOps %s, commit %s.\n#   kubectl apply --server-side -f install.yaml\n", r.tree.Version, r.tree.Commit)
	return r.file("install.yaml", append([]byte(header), objects...))
}

// chart writes the Helm chart, whose image is that of this release.
func (r *release) chart(context.Context) error {
	entries, err := dist.Chart(os.DirFS(filepath.Join(r.tree.Dir, "charts", "podops")), r.tree.Version, r.index.Images[0].Reference())
	if err != nil {
		return err
	}
	path := "podops-" + strings.TrimPrefix(r.tree.Version, "v") + ".tgz"
	archive, err := dist.Pack(path, entries, r.tree.Date)
	if err != nil {
		return err
	}
	fmt.Fprintln(r.out, path)
	return r.file(path, archive)
}

// changelog writes the section of the version.
func (r *release) changelog() error {
	content, err := os.ReadFile(filepath.Join(r.tree.Dir, "CHANGELOG.md"))
	if err != nil {
		return fmt.Errorf("reading the changelog: %w", err)
	}
	section, err := dist.Changelog(string(content), r.tree.Version, source.IsPrerelease(r.tree.Version))
	if err != nil {
		return err
	}
	return r.file("CHANGELOG.md", []byte(section))
}

// file writes a file of the release.
func (r *release) file(path string, content []byte) error {
	if err := os.WriteFile(filepath.Join(r.dir, path), content, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// push pushes images.
func push(ctx context.Context, archives []string, out io.Writer) error {
	for _, archive := range archives {
		pushed, err := ociimage.Push(ctx, archive)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, pushed)
	}
	return nil
}

// unpack unpacks the image for this machine.
func unpack(archive, dir string) error {
	stored, err := ociimage.Open(archive)
	if err != nil {
		return err
	}
	return errors.Join(stored.Unpack(build.Platform{OS: "linux", Arch: runtime.GOARCH}, dir), stored.Close())
}
