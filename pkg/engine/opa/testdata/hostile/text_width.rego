# tries: a short format with a wide field
# outcome: withheld NotAllowed
package rule

allow if sprintf("%999999d%999999d%999999d", [1, 2, 3]) == ""
