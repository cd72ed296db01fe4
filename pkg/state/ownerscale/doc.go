// Package ownerscale reads how many pods a workload is to have from its scale subresource, for every
// kind of owner that PodOps does not know: CollaSets, CloneSets and custom kinds.
//
//	pods ── first pod of an owner ──> Reader.Refer     ┐
//	     ── last pod of an owner ───> Reader.Refer     ├─> Schedule ── Next ──> read ──> Index.SetOwner
//	metadata of the kind ── change ─> Schedule.Changed ┘               <── Done ──┘
//
// Only owners with pods in the index are read, and only their kinds are watched, as metadata. A change of
// the metadata has the scale read again. Schedule is the pure part: it decides which owner is read next,
// and when. Reader makes the requests and keeps the watches.
//
// The creator of a pod chooses the owner that it names, and the server of a custom kind may be slow or
// return anything. So an owner is known by its namespace and UID, each request has a timeout, and each
// namespace has a bounded number of kinds, of owners and of requests at a time; among namespaces with an
// owner to read, the namespace that was served the longest ago is next.
package ownerscale
