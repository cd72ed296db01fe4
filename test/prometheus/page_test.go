package prometheus

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestValuesInTheirUnit(t *testing.T) {
	for _, c := range []struct {
		value float64
		unit  string
		want  string
	}{
		{0, "short", "0"}, {12, "short", "12"}, {1234, "short", "1230"}, {0.123456, "short", "0.123"},
		{7776000, "s", "90.0 d"}, {0.0048, "s", "4.8 ms"}, {90, "s", "90 s"}, {0.256, "percentunit", "25.6 %"},
		{1e-12, "percentunit", "0 %"}, {1.5 * 1024 * 1024, "bytes", "1.5 MiB"}, {2, "reqps", "2/s"},
	} {
		if got := Format(c.value, c.unit); got != c.want {
			t.Errorf("%g in %s: got %q, want %q", c.value, c.unit, got, c.want)
		}
	}
}

func TestLinesAreStacked(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	lines := []line{
		{name: "a", points: []Point{{at(1), 2}, {at(2), 3}}},
		{name: "b", points: []Point{{at(2), 5}, {at(3), 7}}},
	}
	stack(lines)
	want := [][]Point{{{at(1), 2}, {at(2), 3}, {at(3), 0}}, {{at(1), 2}, {at(2), 8}, {at(3), 7}}}
	for i, l := range lines {
		if diff := cmp.Diff(want[i], l.points); diff != "" {
			t.Errorf("line %s (-want +got):\n%s", l.name, diff)
		}
	}
	if diff := cmp.Diff(want[0], lines[1].base); diff != "" {
		t.Errorf("line b begins elsewhere than at line a (-want +got):\n%s", diff)
	}
}
