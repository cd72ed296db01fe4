package policytest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa/moduletest"
)

// result is the result of one test.
type result struct {
	Suite   string `json:"suite"`
	Name    string `json:"name"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Failed  bool   `json:"failed"`
	Skipped bool   `json:"skipped,omitempty"`

	// Warning is true for a warning about a test that another result has.
	Warning bool `json:"warning,omitempty"`

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
	Warnings int                  `json:"warnings,omitempty"`
	Coverage *moduletest.Coverage `json:"coverage,omitempty"`
}

func newReport(results []result) report {
	made := report{Tests: results}
	for _, one := range results {
		switch {
		case one.Warning:
			made.Warnings++
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
	case r.Warning:
		return "WARN"
	case r.Skipped:
		return "SKIP"
	case r.Failed:
		return "FAIL"
	default:
		return "PASS"
	}
}

// summary returns the counts, as one line.
func (r report) summary() string {
	text := fmt.Sprintf("tests: %d passed, %d failed, %d skipped", r.Passed, r.Failed, r.Skipped)
	if r.Warnings > 0 {
		text += fmt.Sprintf("; warnings: %d", r.Warnings)
	}
	return text
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

func table(out io.Writer, r report) error {
	for _, one := range r.Tests {
		_, _ = fmt.Fprintf(out, "%s  %s/%s\n", one.state(), one.Suite, one.Name)
		if one.Failed || one.Warning {
			_, _ = fmt.Fprintf(out, "%s\n", indented(one.Message))
		}
		if one.Output != "" {
			_, _ = fmt.Fprintf(out, "%s\n", indented(one.Output))
		}
	}
	_, _ = fmt.Fprintln(out, r.summary())
	if r.Coverage != nil {
		for _, file := range r.Coverage.Files {
			_, _ = fmt.Fprintf(out, "coverage: %5.1f%% %s", file.Percent, file.File)
			if len(file.NotCovered) > 0 {
				_, _ = fmt.Fprintf(out, ", no test runs %s", rows(file.NotCovered))
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
	_, _ = fmt.Fprintf(out, "TAP version 13\n1..%d\n", len(r.Tests)-r.Warnings)
	number := 0
	for _, one := range r.Tests {
		if one.Warning {
			_, _ = fmt.Fprintf(out, "# warning: %s/%s: %s\n", one.Suite, one.Name, strings.ReplaceAll(one.Message, "\n", "\n# "))
			continue
		}
		number++
		state, note := "ok", ""
		if one.Failed {
			state = "not ok"
		}
		if one.Skipped {
			note = " # SKIP"
		}
		_, _ = fmt.Fprintf(out, "%s %d - %s/%s%s\n", state, number, one.Suite, one.Name, note)
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
		level := "error"
		if one.Warning {
			level = "warning"
		}
		if one.Failed || one.Warning {
			_, _ = fmt.Fprintf(out, "::%s file=%s,line=%d,title=%s::%s\n", level,
				one.File, one.Line, escape.Replace(one.Suite+"/"+one.Name), escape.Replace(one.Message))
		}
	}
	_, err := fmt.Fprintln(out, r.summary())
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
	Output  *junitText `xml:"system-out"`
	Skipped *junitText `xml:"skipped"`
}

type junitText struct {
	Text string `xml:",chardata"`
}

// warn adds a warning to the output of the case that it is about, which comes before it.
func (s *junitSuite) warn(about result) {
	for i := range s.Cases {
		if one := &s.Cases[i]; one.Class == about.Suite && one.Name == about.Name {
			if one.Output == nil {
				one.Output = &junitText{}
			}
			one.Output.Text += "warning: " + about.Message + "\n"
		}
	}
}

func junit(out io.Writer, r report) error {
	suite := junitSuite{Name: "podops", Tests: len(r.Tests) - r.Warnings, Failures: r.Failed, Skipped: r.Skipped}
	for _, one := range r.Tests {
		if one.Warning {
			suite.warn(one)
			continue
		}
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

// rows returns rows of a file, which are sorted, in words: "row 11", or "rows 11, 14-16".
func rows(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		part := strconv.Itoa(numbers[i])
		if last > i {
			part += "-" + strconv.Itoa(numbers[last])
		}
		parts, i = append(parts, part), last+1
	}
	noun := "rows"
	if len(numbers) == 1 {
		noun = "row"
	}
	return noun + " " + strings.Join(parts, ", ")
}
