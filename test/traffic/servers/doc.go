// Package servers lets real HTTP servers listen on the addresses of the pods of the local
// control plane, exactly as long as their containers would: from the moment a pod runs
// until it is deleted or its containers stop. The end is a hard one, since that is what a
// container without a handler for SIGTERM does: nobody is let finish.
package servers
