# tries: a name of the library for its own
# outcome: compile podops_contract_error
package rule

import data.podops.lib.enforcement

allow if enforcement.settle
