# tries: a delay of a hundred years
# outcome: withheld Denied
package rule

deny contains {"message": "later", "retry_after_seconds": 3e9}
