// Package permit decides which waiting requests get a permit next, so that no
// availablePolicy is ever overshot (design section 4), and no rule that judges a pod by
// other pods is got round by asking about two of them at once. It is pure.
//
// A permit is two-phase. First the pods of a batch are reserved: their UIDs and
// resourceVersions are written to the record (status.permits) of every
// PodTransitionRule with a budget that selects them, under that object's
// resourceVersion. (A pod that is unavailable takes no slot, and is recorded only where
// pods are judged by each other.) Then each pod is stamped, under the condition that it is still at
// the resourceVersion that the decision was made on. Three rules make this hold with
// stale caches, several leaders, and a stop at any instruction:
//
//   - A reservation is live while its pod is still at the recorded resourceVersion.
//     Until then somebody may yet stamp it, so it counts as unavailable. Once the pod
//     has moved on, no stamp of that batch can hit it any more, and what it became is
//     seen on the pod itself.
//   - A record says what had been seen (viewResourceVersion) of the pods that it no
//     longer lists. The next batch is only computed from a view that reaches as far,
//     and as far as every pod that is listed: it contains every outcome, and what it
//     shows of a reserved pod is not from before the reservation.
//   - Records are written in the order of their names, and a pod is stamped only
//     after all of them. Two writers therefore meet at the first record they share,
//     where one of them gets a conflict and starts again.
//
// A reservation that was left behind is not a permit: the round that finds it counts the
// pods again, and stamps the pod only while enough are available without it.
//
// A live reservation whose pod is withheld, by another rule or since pods failed, holds a
// slot for nothing. It cannot simply be struck out, since its writer might be about to
// stamp; the plan asks for the pod to be touched instead, which makes the reservation dead.
//
// "One pod of a shard" and "five permits an hour" hold for the same reasons. Whoever is
// judged sees each pod that may be stamped before it: stamped already, in the view;
// reserved, in the record; or granted earlier in the round (Taken). As no two writers
// add to one record from the same state of it, nobody is granted a permit in between.
// What a judge was shown of others need not come true, since a stamp can fail. So a
// rule must not let one pod pass because another one is taken (docs/permits.md).
package permit
