// Package sbom lists the modules that are part of a Go program, as a software bill of materials in the format CycloneDX.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// Subject describes the program.
type Subject struct {
	Name, Version string
	Licenses      string // an expression of SPDX
	Date          time.Time
}

// Of returns the bill of a binary, from what the Go toolchain recorded in it: the modules whose packages are linked,
// and the standard library.
func Of(binary string, subject Subject) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading a program: %w", err)
	}
	built, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("reading the build of %s: %w", binary, err)
	}
	bom := bill(built, sha256.Sum256(content), subject)
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("encoding the bill of %s: %w", binary, err)
	}
	return out.Bytes(), nil
}

// bill returns the bill of a build. sum is the checksum of the binary, which also identifies the bill.
func bill(built *debug.BuildInfo, sum [sha256.Size]byte, subject Subject) *cdx.BOM {
	settings := map[string]string{}
	for _, setting := range built.Settings {
		settings[setting.Key] = setting.Value
	}
	main := cdx.Component{
		BOMRef: "pkg:golang/" + built.Path + "@" + subject.Version, Type: cdx.ComponentTypeApplication,
		Name: subject.Name, Version: subject.Version, PackageURL: "pkg:golang/" + built.Path + "@" + subject.Version,
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses: &cdx.Licenses{{Expression: subject.Licenses}},
		Properties: &[]cdx.Property{
			{Name: "podops:go:os", Value: settings["GOOS"]}, {Name: "podops:go:arch", Value: settings["GOARCH"]},
		},
	}
	components := []cdx.Component{library("std", strings.TrimPrefix(built.GoVersion, "go"), "")}
	for _, module := range built.Deps {
		if module.Replace != nil {
			if strings.HasPrefix(module.Replace.Path, ".") { // this repository
				components = append(components, library(module.Path, subject.Version, ""))
				continue
			}
			module = module.Replace
		}
		components = append(components, library(module.Path, module.Version, module.Sum))
	}
	uses := make([]string, 0, len(components))
	for _, component := range components {
		uses = append(uses, component.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(sum)
	bom.Metadata = &cdx.Metadata{Timestamp: subject.Date.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &uses}}
	return bom
}

// library returns the component of a module. sum is its checksum in go.sum; empty without a
// checksum.
func library(path, version, sum string) cdx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	component := cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) == sha256.Size {
		// As cyclonedx-gomod does: a checksum of the files of the module.
		component.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	}
	return component
}

// serial returns a UUID of version 8, for values of one's own, so that equal binaries have equal bills.
func serial(sum [sha256.Size]byte) string {
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
