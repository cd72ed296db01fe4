# tries: every in every in every
# outcome: withheld Timeout
package rule

allow if {
	every a in input.pods {
		every b in input.pods {
			every c in input.pods {
				[a.name, b.name, c.name] != []
			}
		}
	}
}
