package buildinfo

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

const hash = "033ec471d5e1a8f7f3c2f2f0b1c9d8e7a6b5c4d3"

func TestInfoPrefersTheLinker(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{
			{Key: "vcs.revision", Value: hash}, {Key: "vcs.time", Value: "2026-11-23T07:51:03Z"}, {Key: "vcs.modified", Value: modified},
		}
	}
	for sentence, test := range map[string]struct {
		linked   Info
		recorded *debug.BuildInfo
		want     Info
	}{
		"a release": {
			linked:   Info{Version: "v0.1.0", Commit: hash, Date: "2026-11-20T10:00:00Z"},
			recorded: &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}, Settings: vcs("true")},
			want:     Info{Version: "v0.1.0", Commit: hash, Date: "2026-11-20T10:00:00Z", GoVersion: "go1.26.8"},
		},
		"go build in a working tree": {
			recorded: &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.0.0-20261123075103-033ec471d5e1"}, Settings: vcs("false")},
			want:     Info{Version: "v0.0.0-20261123075103-033ec471d5e1", Commit: hash, Date: "2026-11-23T07:51:03Z", GoVersion: "go1.26.8"},
		},
		"go build in a working tree with changes": {
			recorded: &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}, Settings: vcs("true")},
			want:     Info{Version: Development, Commit: hash + "-dirty", Date: "2026-11-23T07:51:03Z", GoVersion: "go1.26.8"},
		},
		"go install of a version": {
			recorded: &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.2.0"}},
			want:     Info{Version: "v0.2.0", Commit: unknown, Date: unknown, GoVersion: "go1.26.8"},
		},
		"a program without modules": {
			want: Info{Version: Development, Commit: unknown, Date: unknown, GoVersion: runtime.Version()},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			test.want.Platform = platform
			if diff := cmp.Diff(test.want, mergeInfo(test.linked, test.recorded)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheSecondWordOfTheLineIsTheVersion(t *testing.T) {
	line := Info{Version: "v0.1.0", Commit: hash, Date: "2026-11-20T10:00:00Z", GoVersion: "go1.26.8", Platform: "linux/amd64"}.Line("manager")
	if want := "manager v0.1.0 (commit " + hash + " of 2026-11-20T10:00:00Z, go1.26.8, linux/amd64)"; line != want {
		t.Errorf("got %q, want %q", line, want)
	}
	if strings.Fields(Read().Line("manager"))[1] == "" {
		t.Error("the running test has no version")
	}
}

func TestTheBuildIsAMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := Register(registry, Info{Version: "v0.1.0", Commit: hash, GoVersion: "go1.26.8"}); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "podops_build_info" {
		t.Fatalf("got %v, %v", families, err)
	}
	series := families[0].GetMetric()[0]
	got := map[string]string{}
	for _, label := range series.GetLabel() {
		got[label.GetName()] = label.GetValue()
	}
	want := map[string]string{"version": "v0.1.0", "commit": hash, "goversion": "go1.26.8"}
	if diff := cmp.Diff(want, got); diff != "" || series.GetGauge().GetValue() != 1 {
		t.Errorf("value %v, labels (-want +got):\n%s", series.GetGauge().GetValue(), diff)
	}
}
