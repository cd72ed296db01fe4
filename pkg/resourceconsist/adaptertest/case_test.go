package adaptertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func caseNames(t *testing.T, cfg Config) []string {
	t.Helper()
	cases, err := Cases(cfg)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(cases))
	for i, c := range cases {
		names[i] = c.Name
		if c.Property == "" {
			t.Errorf("the case %q has no description", c.Name)
		}
	}
	return names
}

func TestCaseNamesAreUnique(t *testing.T) {
	names := caseNames(t, templateConfig(good))
	if got := slices.Compact(slices.Sorted(slices.Values(names))); len(got) != len(names) {
		t.Errorf("there are %d cases with %d names: %q", len(names), len(got), names)
	}
}

func TestCasesForUnsupportedKindsAreLeftOut(t *testing.T) {
	all := caseNames(t, templateConfig(good))
	cases := map[string]struct {
		spoil func(*Config)
		gone  []string
	}{
		"no weights": {
			spoil: func(c *Config) { c.Without = map[Kind]string{Weights: "every server gets the same"} },
			gone:  []string{"update-weight"},
		},
		"no restart and no sessions": {
			spoil: func(c *Config) { c.Without = map[Kind]string{Restart: "a service", Sessions: "datagrams"} },
			gone:  []string{"restart", "drain"},
		},
		"an employer that has nothing at the provider": {
			spoil: func(c *Config) { c.Ops = []Op{ReadEmployees, CreateEmployees, UpdateEmployees, DeleteEmployees} },
			gone: []string{
				"employer-update",
				"fail-read-employer", "fail-create-employer", "fail-update-employer", "fail-delete-employer",
				"lost-reply-create-employer", "lost-reply-update-employer", "lost-reply-delete-employer",
				"hang-read-employer", "hang-create-employer", "hang-update-employer", "hang-delete-employer",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := templateConfig(good)
			tc.spoil(&cfg)
			left := caseNames(t, cfg)
			gone := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(left, name) })
			if diff := cmp.Diff(tc.gone, gone); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEachCaseThatIsLeftOutIsNamed shows that Run logs every case that an omitted operation leaves out.
func TestEachCaseThatIsLeftOutIsNamed(t *testing.T) {
	cfg := templateConfig(good)
	cfg.Ops = []Op{ReadEmployees}
	var named []string
	for _, op := range everyOp() {
		named = append(named, cfg.leftOutWithout(op)...)
	}
	left, all := caseNames(t, cfg), caseNames(t, templateConfig(good))
	gone := slices.DeleteFunc(all, func(name string) bool { return slices.Contains(left, name) })
	slices.Sort(named)
	slices.Sort(gone)
	if diff := cmp.Diff(gone, named); diff != "" {
		t.Errorf("cases that are left out (-want +named):\n%s", diff)
	}
	t.Logf("%d cases are left out: %q", len(named), named)
}

func TestAnIncompleteConfigIsRejected(t *testing.T) {
	cases := map[string]struct {
		spoil    func(*Config)
		property string
	}{
		"no New":                  {spoil: func(c *Config) { c.New = nil }, property: "Config.New"},
		"no reads":                {spoil: func(c *Config) { c.Ops = []Op{CreateEmployees} }, property: "Config.Ops"},
		"an unknown kind":         {spoil: func(c *Config) { c.Without = map[Kind]string{"rain": "dry here"} }, property: `"rain"`},
		"an unknown operation":    {spoil: func(c *Config) { c.Ops = []Op{ReadEmployees, "write"} }, property: `"write"`},
		"a kind without a reason": {spoil: func(c *Config) { c.Without = map[Kind]string{Hang: ""} }, property: `Config.Without["hang"]`},
		"too few addresses":       {spoil: func(c *Config) { c.Addresses = []string{"a", "b", "c", "a"} }, property: "Config.Addresses"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := templateConfig(good)
			tc.spoil(&cfg)
			if _, err := Cases(cfg); err == nil || !strings.Contains(err.Error(), tc.property) {
				t.Errorf("error: %v; want one that names %s", err, tc.property)
			}
		})
	}
}

func TestAFixtureWithoutAnAdapterEndsItsCase(t *testing.T) {
	cfg := templateConfig(good)
	cfg.New = func(testing.TB) Fixture { return Fixture{} }
	if failures := record(t, cfg, "create"); len(failures) != 1 || !strings.Contains(failures[0], "without an adapter") {
		t.Errorf("failures: %q; want a failure that names the missing field", failures)
	}
}

// bareProvider implements neither Occupier nor Counter.
type bareProvider struct{ Provider }

// bareCluster does not implement EmployerChanger.
type bareCluster struct{ Cluster }

func TestAMissingOptionalInterfaceIsNamed(t *testing.T) {
	for name, property := range map[string]string{"drain": `Config.Without["sessions"]`, "employer-update": "method Change"} {
		t.Run(name, func(t *testing.T) {
			cfg := templateConfig(good)
			fixture := cfg.New
			cfg.New = func(t testing.TB) Fixture {
				f := fixture(t)
				f.Provider, f.Cluster = bareProvider{f.Provider}, bareCluster{f.Cluster}
				return f
			}
			if failures := record(t, cfg, name); len(failures) != 1 || !strings.Contains(failures[0], property) {
				t.Errorf("failures: %q; want one with %s", failures, property)
			}
		})
	}
}
