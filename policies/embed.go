// Package policies is the Rego library that compiled rules call, as part of the binary. The
// directory is also an ordinary tree of Rego sources: "opa test policies" works.
package policies

import (
	"bytes"
	"embed"
	"io/fs"
)

// The files are listed one by one so that tests are not part of the binary: there is no pattern for
// "all except _test.rego". A test of this package fails if a file is missing.
//
//go:embed podops/lib/applies/applies.rego
//go:embed podops/lib/complete/complete.rego
//go:embed podops/lib/enforcement/enforcement.rego
//go:embed podops/lib/quota/quota.rego
//go:embed podops/lib/selector/selector.rego
//go:embed podops/rules/approval/approval.rego
//go:embed podops/rules/availability/availability.rego
//go:embed podops/rules/custom/custom.rego
//go:embed podops/rules/labelcheck/labelcheck.rego
//go:embed podops/rules/webhook/webhook.rego
var library embed.FS

// The linker drops this variable from binaries that do not call All.
//
//go:embed podops conventions examples
var all embed.FS

// Library returns the Rego modules that rules are compiled with, at paths that follow their
// packages ("podops/lib/quota/quota.rego"). It holds no tests.
func Library() fs.FS { return library }

// All returns every Rego file: modules of the library and their tests, the worked policies, and the
// policy about the Rego files themselves.
func All() fs.FS { return all }

//go:embed schema/input.json
var inputSchema []byte

// InputSchema returns the JSON schema of the input of a custom rule. The caller owns the copy.
func InputSchema() []byte { return bytes.Clone(inputSchema) }

//go:embed capabilities.json
var capabilities []byte

// Capabilities returns the list of the parts of Rego that a rule may use, in the file format of
// OPA. The engine, "opa check" and "opa test" all take it. The caller owns the copy.
func Capabilities() []byte { return bytes.Clone(capabilities) }
