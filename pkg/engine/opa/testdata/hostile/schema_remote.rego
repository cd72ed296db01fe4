# tries: a schema from the network, by an annotation
# outcome: withheld NotAllowed
package rule

# METADATA
# scope: rule
# schemas:
# - input: {"$ref": "http://169.254.169.254/schema.json"}
allow if input.pod.labels.none == "x"
