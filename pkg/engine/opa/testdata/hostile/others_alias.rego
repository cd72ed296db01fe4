# tries: all data, under another name
# outcome: compile podops_contract_error
package rule

import data as d

allow if d.podops
