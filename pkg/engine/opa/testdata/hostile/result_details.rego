# tries: all pods as details
# outcome: withheld Denied
package rule

deny contains {"message": "look", "details": input.pods}
