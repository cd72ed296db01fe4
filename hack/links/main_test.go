package main

import (
	"bytes"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	tree := fstest.MapFS{
		"docs/rules.md":    {Data: []byte("# Rules\n\n## The `spec` of a rule, in short\n\n## Status\n\n## Status\n\n```\n# not a heading\n```\n")},
		"docs/picture.svg": {},
		"pkg/a.go":         {Data: []byte("// docs/rules.md#status is a page, docs/none.md is not.\n")},
		"README.md": {Data: []byte(`# Read me

[a page](docs/rules.md), [its heading](docs/rules.md#the-spec-of-a-rule-in-short), ![a picture](docs/picture.svg "it")
[the second of two](docs/rules.md#status-1), [a folder](docs), [this page](#read-me), [a site](https://example.com/none#x)
` + "`[code](none.md)`" + `

` + "```\n[more code](none.md)\n```" + `

[no page](docs/none.md), [no heading](docs/rules.md#none), [code](docs/rules.md#not-a-heading), [no third](docs/rules.md#status-2)
[outside](../other.md)
`)},
	}
	var out bytes.Buffer
	found, err := check(&out, tree, []string{"README.md", "docs/deleted.md", "docs/rules.md", "pkg/a.go"})
	if err != nil {
		t.Fatal(err)
	}
	want := `README.md:11: docs/none.md: no such file
README.md:11: docs/rules.md#none: no such heading
README.md:11: docs/rules.md#not-a-heading: no such heading
README.md:11: docs/rules.md#status-2: no such heading
README.md:12: ../other.md: outside of the repository
pkg/a.go:1: docs/none.md: no such file
`
	if diff := cmp.Diff(want, out.String()); diff != "" || found != 6 {
		t.Errorf("found %d (-want +got):\n%s", found, diff)
	}
}

func TestExcerpts(t *testing.T) {
	fence := "```"
	tree := fstest.MapFS{
		"testdata/why.txt": {Data: []byte("Why:\n1. it waits\n2. it is not ready\n")},
		"page.md": {Data: []byte(fence + "text testdata/why.txt\n1. it waits\n2. it is not ready\n" + fence + "\n" +
			fence + "text testdata/why.txt\n1. it waited\n" + fence + "\n" +
			fence + "text testdata/none.txt\n" + fence + "\n" +
			fence + "text\nany text\n" + fence + "\n" +
			fence + "text testdata/why.txt\n")},
	}
	var out bytes.Buffer
	found, err := check(&out, tree, []string{"page.md"})
	if err != nil {
		t.Fatal(err)
	}
	want := `page.md:5: the block is not part of testdata/why.txt
page.md:8: testdata/none.txt: no such file
page.md:13: the block has no end
`
	if diff := cmp.Diff(want, out.String()); diff != "" || found != 3 {
		t.Errorf("found %d (-want +got):\n%s", found, diff)
	}
}
