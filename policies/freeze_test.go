package policies_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"
	"pgregory.net/rapid"
)

// step divides every boundary of a window in every time zone that is drawn.
const step = 15 * time.Minute

// window is a window of every week, in minutes of the day.
type window struct {
	days     []time.Weekday
	from, to int
}

// period is a period of the calendar: days, the last one included.
type period struct{ from, to time.Time }

// calendar is the model of change_freeze: it uses the local time, and finds the end by going
// forward in steps.
type calendar struct {
	zone    *time.Location
	weekly  []window
	periods []period
}

func (c calendar) frozen(at time.Time) bool {
	at = at.In(c.zone)
	day := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	minute := at.Hour()*60 + at.Minute()
	for _, w := range c.weekly {
		overnight := w.to <= w.from
		today := slices.Contains(w.days, at.Weekday())
		yesterday := slices.Contains(w.days, day.AddDate(0, 0, -1).Weekday())
		switch {
		case today && minute >= w.from && (overnight || minute < w.to):
			return true
		case yesterday && overnight && minute < w.to:
			return true
		}
	}
	return slices.ContainsFunc(c.periods, func(p period) bool { return !day.Before(p.from) && !day.After(p.to) })
}

// end returns the first moment after at that is not frozen; false if every moment is frozen for a
// long time.
func (c calendar) end(at time.Time) (time.Time, bool) {
	last := at.AddDate(0, 0, 60)
	for at = at.Truncate(step).Add(step); at.Before(last); at = at.Add(step) {
		if !c.frozen(at) {
			return at, true
		}
	}
	return time.Time{}, false
}

func (c calendar) input(now time.Time) map[string]any {
	weekly, dates := []any{}, []any{}
	for _, w := range c.weekly {
		days := []any{}
		for _, day := range w.days {
			days = append(days, day.String())
		}
		weekly = append(weekly, map[string]any{"days": days, "from": clock(w.from), "to": clock(w.to)})
	}
	for _, p := range c.periods {
		dates = append(dates, map[string]any{"from": p.from.Format(time.DateOnly), "to": p.to.Format(time.DateOnly)})
	}
	return map[string]any{
		"now":        now.UnixNano(),
		"parameters": map[string]any{"time_zone": c.zone.String(), "weekly": weekly, "dates": dates},
	}
}

func clock(minute int) string { return fmt.Sprintf("%02d:%02d", minute/60, minute%60) }

func drawCalendar(t *rapid.T) calendar {
	zone, err := time.LoadLocation(rapid.SampledFrom([]string{
		"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe",
	}).Draw(t, "zone"))
	if err != nil {
		t.Fatal(err)
	}
	halfHour := func(most int) *rapid.Generator[int] {
		return rapid.Map(rapid.IntRange(0, most), func(n int) int { return n * 30 })
	}
	drawn := calendar{zone: zone}
	for range rapid.IntRange(0, 3).Draw(t, "windows") {
		drawn.weekly = append(drawn.weekly, window{
			days: rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, 6), func(day int) time.Weekday {
				return time.Weekday(day)
			}), 1, 7, rapid.ID).Draw(t, "days"),
			from: halfHour(47).Draw(t, "from"),
			to:   halfHour(48).Draw(t, "to"),
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "periods") {
		from := time.Date(2026, time.March, 1+rapid.IntRange(0, 60).Draw(t, "day"), 0, 0, 0, 0, time.UTC)
		drawn.periods = append(drawn.periods, period{from, from.AddDate(0, 0, rapid.IntRange(0, 9).Draw(t, "length"))})
	}
	return drawn
}

// TestChangeFreezeEqualsTheCalendar compares the example with the model. If the clocks change in
// between, the local time may show an end twice, or never, so a difference of an hour is allowed.
func TestChangeFreezeEqualsTheCalendar(t *testing.T) {
	all := examples(t)
	index := slices.IndexFunc(all, func(e example) bool { return e.name == "change_freeze" })
	subject := all[index].prepare(t)
	rapid.Check(t, func(t *rapid.T) {
		drawn := drawCalendar(t)
		now := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC).
			Add(time.Duration(rapid.Int64Range(0, int64(60*24*time.Hour)).Draw(t, "now")))
		results, err := subject.Eval(t.Context(), rego.EvalInput(drawn.input(now)))
		if err != nil {
			t.Fatal(err)
		}
		denied := results[0].Expressions[0].Value.(map[string]any)["deny"].([]any)
		if frozen := drawn.frozen(now); frozen != (len(denied) > 0) {
			t.Fatalf("frozen: %v, want %v", denied, frozen)
		}
		if len(denied) == 0 {
			return
		}
		denial := denied[0].(map[string]any)
		seconds, err := time.ParseDuration(fmt.Sprint(denial["retry_after_seconds"]) + "s")
		if err != nil {
			t.Fatal(err)
		}
		end, found := drawn.end(now)
		if !found {
			if denial["message"] != "change freeze with no end in sight" {
				t.Fatalf("got %v, want no end", denial)
			}
			return
		}
		early, late := time.Duration(0), time.Second
		_, before := now.In(drawn.zone).Zone()
		if _, after := end.In(drawn.zone).Zone(); before != after {
			early, late = time.Hour, time.Hour+time.Second
		}
		if off := now.Add(seconds).Sub(end); off < -early || off > late {
			t.Fatalf("got %v, which is %v after the end at %v", denial, off, end)
		}
	})
}
