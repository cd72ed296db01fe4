# tries: the entry point of ours
# outcome: withheld NotAllowed
package rule

allow if input.pod.ready

decision := {"passed": {"request"}, "needs_slot": set(), "withheld": {}, "would": {}}
