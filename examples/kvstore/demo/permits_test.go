package main

import (
	"errors"
	"testing"
	"time"
)

// TestAPermitFollowsAnApprovalInWhichAnotherPodLeads has lines of the log of the operator, by their second.
func TestAPermitFollowsAnApprovalInWhichAnotherPodLeads(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	approval := hookLine{At: at(5), Message: "Decided on a pod", Pod: "db-0", UID: "a", Approved: true, Leader: "db-1", Term: 4}
	rejection := approval
	rejection.Approved = false
	late, another, leading := approval, approval, approval
	late.At, another.UID, leading.Leader = at(11), "b", "db-0"
	moved := hookLine{At: at(4), Message: "Moved leadership", From: "db-0"}
	for sentence, tc := range map[string]struct {
		lines  []hookLine
		leader string
		term   uint64
		moved  bool
		want   error
	}{
		"approved in the term of the permit":                   {[]hookLine{approval}, "db-1", 4, false, nil},
		"approved after leadership has moved":                  {[]hookLine{moved, approval}, "db-1", 4, true, nil},
		"approved, and a third pod leads by now":               {[]hookLine{approval}, "db-2", 5, false, nil},
		"approved, and led at the permit":                      {[]hookLine{approval}, "db-0", 5, false, errPermit},
		"approved although it led":                             {[]hookLine{leading}, "db-0", 4, false, errPermit},
		"approved after the permit":                            {[]hookLine{late}, "db-1", 4, false, errPermit},
		"rejected":                                             {[]hookLine{rejection}, "db-1", 4, false, errPermit},
		"approved for an earlier pod of the same name":         {[]hookLine{another}, "db-1", 4, false, errPermit},
		"never approved, although leadership moved away first": {[]hookLine{moved}, "db-1", 4, true, errPermit},
	} {
		t.Run(sentence, func(t *testing.T) {
			moved, err := checkPermit(permit{pod: "db-0", uid: "a", at: at(10), leader: tc.leader, term: tc.term}, tc.lines)
			if moved != tc.moved || !errors.Is(err, tc.want) {
				t.Errorf("moved %t, want %t; got %v, want %v", moved, tc.moved, err, tc.want)
			}
		})
	}
}
