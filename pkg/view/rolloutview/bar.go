package rolloutview

import "strings"

// group is a set of phases that a bar shows in one way.
type group struct {
	word  string
	block rune
	style Style
	count int
}

// groups returns the groups in the order of a bar. Blocks differ in form, so that a bar is read without
// colors.
func groups() []group {
	return []group{
		{word: "serving", block: '█', style: StyleServing},
		{word: "waiting", block: '▒', style: StyleWaiting},
		{word: "off", block: '░', style: StyleOff},
		{word: "starting", block: '·', style: StyleStarting},
		{word: "finished", block: ' ', style: StyleFaint},
	}
}

// phaseIndex returns the group of a phase, as an index of groups.
func phaseIndex(phase Phase) int {
	switch phase {
	case PhaseAvailable:
		return 0
	case PhasePreCheck:
		return 1
	case PhaseStarting:
		return 3
	case PhaseFinished:
		return 4
	default:
		return 2
	}
}

func phaseGroup(phase Phase) group { return groups()[phaseIndex(phase)] }

// groupPods returns the groups that pods are in, with their number.
func groupPods(pods []Pod) []group {
	all := groups()
	for i := range pods {
		all[phaseIndex(pods[i].Phase)].count++
	}
	var some []group
	for _, group := range all {
		if group.count > 0 {
			some = append(some, group)
		}
	}
	return some
}

// bar returns a bar of pods: a block for each, or, for more pods than blocks, a share of the blocks, with
// at least one for each group.
func bar(pods []Pod, blocks int) []Segment {
	var line []Segment
	left := blocks
	some := groupPods(pods)
	for i, group := range some {
		count := group.count
		if len(pods) > blocks {
			count = min(max(1, group.count*blocks/len(pods)), left-(len(some)-1-i))
			if i == len(some)-1 {
				count = left
			}
		}
		left -= count
		line = append(line, Segment{strings.Repeat(string(group.block), max(0, count)), group.style})
	}
	return line
}

// steps returns the progress of a pod through an operation, a block for each of PreCheck, Preparing,
// Operating, PostCheck and Completing: blocks of phases that are over or in progress are filled. A pod that
// serves has full blocks.
func steps(phase Phase) []Segment {
	way := []Phase{PhasePreCheck, PhasePreparing, PhaseOperating, PhasePostCheck, PhaseCompleting}
	at := -1
	for i, step := range way {
		if step == phase {
			at = i
		}
	}
	group := phaseGroup(phase)
	if at < 0 {
		return []Segment{{strings.Repeat(string(group.block), len(way)), group.style}}
	}
	return []Segment{
		{strings.Repeat(string(group.block), at+1), group.style},
		{strings.Repeat("·", len(way)-1-at), StyleFaint},
	}
}
