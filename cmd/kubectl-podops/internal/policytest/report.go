package policytest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/podops-dev/podops/pkg/opa/moduletest"
)

// result is the result of one test.
type result struct {
	Suite    string        `json:"suite"`
	Name     string        `json:"name"`
	File     string        `json:"file,omitempty"`
	Line     int           `json:"line,omitempty"`
	Failed   bool          `json:"failed"`
	Skipped  bool          `json:"skipped,omitempty"`
	Message  string        `json:"message,omitempty"`
	Output   string        `json:"output,omitempty"`
	Duration time.Duration `json:"durationNanoseconds"`
}

// report is the result of a run.
type report struct {
	Tests    []result             `json:"tests"`
	Passed   int                  `json:"passed"`
	Failed   int                  `json:"failed"`
	Skipped  int                  `json:"skipped"`
	Coverage *moduletest.Coverage `json:"coverage,omitempty"`
}

func newReport(results []result) report {
	made := report{Tests: results}
	for _, one := range results {
		switch {
		case one.Skipped:
			made.Skipped++
		case one.Failed:
			made.Failed++
		default:
			made.Passed++
		}
	}
	return made
}

// formats returns the formats of --output.
func formats() map[string]func(io.Writer, report) error {
	return map[string]func(io.Writer, report) error{"": table, "json": asJSON, "junit": junit, "tap": tap, "github": github}
}

func (r result) state() string {
	switch {
	case r.Skipped:
		return "SKIP"
	case r.Failed:
		return "FAIL"
	default:
		return "PASS"
	}
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

func table(out io.Writer, r report) error {
	for _, one := range r.Tests {
		_, _ = fmt.Fprintf(out, "%s  %s/%s\n", one.state(), one.Suite, one.Name)
		if one.Failed {
			_, _ = fmt.Fprintf(out, "%s\n", indented(one.Message))
		}
		if one.Output != "" {
			_, _ = fmt.Fprintf(out, "%s\n", indented(one.Output))
		}
	}
	_, _ = fmt.Fprintf(out, "tests: %d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
	if r.Coverage != nil {
		for _, file := range r.Coverage.Files {
			_, _ = fmt.Fprintf(out, "coverage: %5.1f%% %s", file.Percent, file.File)
			if len(file.NotCovered) > 0 {
				_, _ = fmt.Fprintf(out, ", not rows %s", strings.Trim(fmt.Sprint(file.NotCovered), "[]"))
			}
			_, _ = fmt.Fprintln(out)
		}
		_, _ = fmt.Fprintf(out, "coverage: %5.1f%% of all modules\n", r.Coverage.Percent)
	}
	return nil
}

func asJSON(out io.Writer, r report) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func tap(out io.Writer, r report) error {
	_, _ = fmt.Fprintf(out, "TAP version 13\n1..%d\n", len(r.Tests))
	for i, one := range r.Tests {
		state, note := "ok", ""
		if one.Failed {
			state = "not ok"
		}
		if one.Skipped {
			note = " # SKIP"
		}
		_, _ = fmt.Fprintf(out, "%s %d - %s/%s%s\n", state, i+1, one.Suite, one.Name, note)
		if one.Failed {
			_, _ = fmt.Fprintf(out, "# %s\n", strings.ReplaceAll(strings.TrimRight(one.Message, "\n"), "\n", "\n# "))
		}
	}
	return nil
}

// github prints the workflow commands of GitHub Actions.
func github(out io.Writer, r report) error {
	escape := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	for _, one := range r.Tests {
		if one.Failed {
			_, _ = fmt.Fprintf(out, "::error file=%s,line=%d,title=%s::%s\n",
				one.File, one.Line, escape.Replace(one.Suite+"/"+one.Name), escape.Replace(one.Message))
		}
	}
	_, err := fmt.Fprintf(out, "tests: %d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
	return err
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	File    string     `xml:"file,attr,omitempty"`
	Time    string     `xml:"time,attr"`
	Failure *junitText `xml:"failure"`
	Skipped *junitText `xml:"skipped"`
}

type junitText struct {
	Text string `xml:",chardata"`
}

func junit(out io.Writer, r report) error {
	suite := junitSuite{Name: "podops", Tests: len(r.Tests), Failures: r.Failed, Skipped: r.Skipped}
	for _, one := range r.Tests {
		made := junitCase{Class: one.Suite, Name: one.Name, File: one.File, Time: fmt.Sprintf("%.3f", one.Duration.Seconds())}
		if one.Failed {
			made.Failure = &junitText{one.Message}
		}
		if one.Skipped {
			made.Skipped = &junitText{}
		}
		suite.Cases = append(suite.Cases, made)
	}
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s%s\n", xml.Header, text)
	return err
}
