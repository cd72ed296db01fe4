package dist

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The files that list the others.
const (
	indexName     = "index.json"
	checksumsName = "SHA256SUMS"
)

// Index is the content of index.json: everything that a release consists of.
type Index struct {
	Version   string    `json:"version"`
	Commit    string    `json:"commit"`
	Date      time.Time `json:"date"`
	GoVersion string    `json:"goVersion"`
	Images    []Image   `json:"images"`
	Files     []File    `json:"files"`
}

// Image is an image of a release.
type Image struct {
	// Name is the name with the tag, and Digest that of the index of all platforms.
	Name   string `json:"name"`
	Digest string `json:"digest"`

	Platforms []string `json:"platforms"`

	// File is the archive of the image, and SBOMs has a bill of materials per platform.
	File  string            `json:"file"`
	SBOMs map[string]string `json:"sboms"`
}

// Reference returns the name with tag and digest: the tag is for readers, the digest decides.
func (i Image) Reference() string { return i.Name + "@" + i.Digest }

// File is a file of a release, with its path in the folder of the release.
type File struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// WriteIndex writes index.json, with every file of the folder, and the checksums of all files as sha256sum
// reads them.
func WriteIndex(dir string, index Index) error {
	var err error
	if index.Files, err = files(dir); err != nil {
		return err
	}
	encoded, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the index: %w", err)
	}
	encoded = append(encoded, '\n')
	if err := os.WriteFile(filepath.Join(dir, indexName), encoded, 0o644); err != nil {
		return fmt.Errorf("writing the index: %w", err)
	}
	var sums strings.Builder
	for _, file := range append(index.Files, File{Path: indexName, SHA256: Sum(encoded)}) {
		fmt.Fprintf(&sums, "%s  %s\n", file.SHA256, file.Path)
	}
	if err := os.WriteFile(filepath.Join(dir, checksumsName), []byte(sums.String()), 0o644); err != nil {
		return fmt.Errorf("writing the checksums: %w", err)
	}
	return nil
}

// ReadIndex reads index.json, and compares the files of the folder with it.
func ReadIndex(dir string) (Index, error) {
	encoded, err := os.ReadFile(filepath.Join(dir, indexName))
	if err != nil {
		return Index{}, fmt.Errorf("reading the index of the release: %w", err)
	}
	var index Index
	if err := json.Unmarshal(encoded, &index); err != nil {
		return Index{}, fmt.Errorf("decoding %s: %w", indexName, err)
	}
	var errs []error
	for _, file := range index.Files {
		sum, _, err := sumOf(filepath.Join(dir, filepath.FromSlash(file.Path)))
		if err == nil && sum != file.SHA256 {
			err = fmt.Errorf("%s differs from %s: build the release again", file.Path, indexName)
		}
		errs = append(errs, err)
	}
	return index, errors.Join(errs...)
}

// Sum returns the checksum of a file's content, in hexadecimal.
func Sum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// files returns the files below a folder by path.
func files(dir string) ([]File, error) {
	var found []File
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		sum, size, err := sumOf(path)
		found = append(found, File{Path: filepath.ToSlash(inside), SHA256: sum, Size: size})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the files of the release: %w", err)
	}
	return found, nil
}

func sumOf(path string) (sum string, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	hash := sha256.New()
	size, err = io.Copy(hash, file)
	return hex.EncodeToString(hash.Sum(nil)), size, errors.Join(err, file.Close())
}

// Replace moves a folder to the place of a release. It removes only what was a release, and leaves no part of it in its
// place, wherever it is interrupted.
func Replace(from, to string) error {
	entries, err := os.ReadDir(to)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("reading %s: %w", to, err)
	}
	if _, err := os.Stat(filepath.Join(to, indexName)); len(entries) > 0 && err != nil {
		return fmt.Errorf("%s has files and no %s: it is no release, and is not replaced", to, indexName)
	}
	earlier := from + ".earlier"
	if err := os.Rename(to, earlier); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("moving the earlier release: %w", err)
	}
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("moving the release: %w", err)
	}
	if err := os.RemoveAll(earlier); err != nil {
		return fmt.Errorf("removing the earlier release: %w", err)
	}
	return nil
}
