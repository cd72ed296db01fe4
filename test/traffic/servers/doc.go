// Package servers runs real HTTP servers on the addresses of the pods of the local control
// plane, exactly as long as their containers would run: from the moment a pod runs until it
// is deleted or its containers stop. They end without finishing requests, as a container
// without a handler for SIGTERM does.
package servers
