# tries: the entry point of ours
# outcome: withheld NotAllowed
package rule

allow if input.pod.ready

decision := {"passed": {"asked"}, "takes": set(), "withheld": {}, "would": {}}
