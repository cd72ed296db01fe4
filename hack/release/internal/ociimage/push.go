package ociimage

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push pushes the image of an archive to the registry that its name contains, with the credentials that docker and
// podman use, and returns its name by digest. It reads the result back from the registry.
func Push(ctx context.Context, archive string) (pushed name.Digest, err error) {
	stored, err := Open(archive)
	if err != nil {
		return name.Digest{}, err
	}
	defer func() { _ = stored.Close() }() // a temporary folder
	digest, err := stored.Index.Digest()
	if err != nil {
		return name.Digest{}, fmt.Errorf("computing the digest of %s: %w", archive, err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(stored.Tag, stored.Index, options...); err != nil {
		return name.Digest{}, fmt.Errorf("pushing %s: %w", stored.Tag, err)
	}
	found, err := remote.Head(stored.Tag, options...)
	if err != nil {
		return name.Digest{}, fmt.Errorf("reading %s back: %w", stored.Tag, err)
	}
	if found.Digest != digest {
		return name.Digest{}, fmt.Errorf("the registry has %s for %s, want %s", found.Digest, stored.Tag, digest)
	}
	return stored.Tag.Digest(digest.String()), nil
}
