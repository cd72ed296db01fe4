package world

import "slices"

// Shrink returns the smallest schedule that it finds with the same failure: with fewer acts and workloads. It plays at
// most a number of schedules.
func Shrink(s Schedule, fails func(Schedule) bool, plays int) Schedule {
	try := func(candidate Schedule) bool {
		if plays == 0 {
			return false
		}
		plays--
		if !fails(candidate) {
			return false
		}
		s = candidate
		return true
	}
	for size := max(1, len(s.Acts)/2); ; size /= 2 {
		for from := 0; from < len(s.Acts); {
			candidate := s
			candidate.Acts = slices.Delete(slices.Clone(s.Acts), from, min(from+size, len(s.Acts)))
			if !try(candidate) {
				from += size
			}
		}
		if size <= 1 {
			break
		}
	}
	for i := len(s.Workloads) - 1; i >= 0 && len(s.Workloads) > 1; i-- {
		candidate := s
		name := s.Workloads[i].Name
		candidate.Workloads = slices.Delete(slices.Clone(s.Workloads), i, i+1)
		candidate.Acts = slices.DeleteFunc(slices.Clone(s.Acts), func(a Act) bool { return a.On == name })
		try(candidate)
	}
	for _, simpler := range []func(*Schedule){
		func(c *Schedule) { c.Late = nil },
		func(c *Schedule) { c.BothLead = false },
		func(c *Schedule) { c.Managers, c.BothLead = min(1, c.Managers), false },
	} {
		candidate := s
		simpler(&candidate)
		try(candidate)
	}
	return s
}
