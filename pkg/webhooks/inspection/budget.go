package inspection

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

// Cluster is the owner of modules in objects without a namespace.
const Cluster = "PodTransitionPolicy"

// Bounds of one owner, and of all owners together.
const (
	// burst is the CPU that an owner may use for checks at once: some 100 to 200 modules.
	burst = 20 * time.Second

	// refill is the part of each second that is added to the budget.
	refill = 0.2

	// maxOwnerBytes and maxBytes bound the modules of the requests in flight. A PodTransitionRule has
	// up to 1 MiB of them.
	maxOwnerBytes = 4 << 20
	maxBytes      = 16 << 20

	// limiterBytes bounds the memory of the limiters. An owner whose limiter is evicted has its
	// burst again.
	limiterBytes = 1 << 20
)

// BusyError reports that a module is not checked now, because its owner has used up its share of
// the manager. It is independent of the module.
type BusyError struct {
	Owner string

	// What is the name of the used-up share.
	What string

	// RetryAfter is when a retry can succeed.
	RetryAfter time.Duration
}

// Error includes the way out.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%s: %s: try again in %s, or apply fewer new modules at a time; modules that have been checked before cost nothing",
		e.Owner, e.What, e.RetryAfter)
}

// budget bounds the CPU and the bytes for the modules of one owner, and of all together. It is safe for
// concurrent use.
type budget struct {
	clock clock.PassiveClock

	mu sync.Mutex

	// limiters count milliseconds of CPU by owner.
	limiters *fairshare.Cache[string, *rate.Limiter]

	// inFlight are the bytes of modules by owner. total is their sum.
	inFlight map[string]int
	total    int
}

func newBudget(clk clock.PassiveClock) *budget {
	return &budget{clock: clk, limiters: fairshare.NewCache[string, *rate.Limiter](limiterBytes), inFlight: map[string]int{}}
}

// enter counts the modules of a request, which have one owner, until release is called.
func (b *budget) enter(modules []Module) (release func(), err error) {
	if len(modules) == 0 {
		return func() {}, nil
	}
	owner, bytes := modules[0].Owner, 0
	for _, module := range modules {
		bytes += len(module.Source) + len(module.ParametersSchema)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	held := b.inFlight[owner]
	if held > 0 && (held+bytes > maxOwnerBytes || b.total+bytes > maxBytes) {
		return nil, &BusyError{Owner: owner, What: fmt.Sprintf("modules of %d bytes are being checked already", held), RetryAfter: time.Second}
	}
	b.inFlight[owner] += bytes
	b.total += bytes
	return func() { b.leave(owner, bytes) }, nil
}

func (b *budget) leave(owner string, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= bytes
	if b.inFlight[owner] -= bytes; b.inFlight[owner] == 0 {
		delete(b.inFlight, owner)
	}
}

// allow returns a *BusyError for an owner without CPU left.
func (b *budget) allow(owner string) error {
	tokens := b.limiter(owner).TokensAt(b.clock.Now())
	if tokens >= 1 {
		return nil
	}
	const perSecond = refill * 1000
	wait := time.Duration((1 - tokens) / perSecond * float64(time.Second))
	return &BusyError{
		Owner: owner, What: fmt.Sprintf("its modules took more than %s of CPU to check lately", burst),
		RetryAfter: wait.Round(time.Second) + time.Second,
	}
}

// spend subtracts the CPU of a check from the budget of an owner.
func (b *budget) spend(owner string, spent time.Duration) {
	if spent > 0 {
		b.limiter(owner).ReserveN(b.clock.Now(), int(min(spent, burst).Milliseconds()))
	}
}

func (b *budget) limiter(owner string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.limiters.Get(owner); ok {
		return known
	}
	const limiterSize = 128
	made := rate.NewLimiter(rate.Limit(refill*1000), int(burst.Milliseconds()))
	b.limiters.Add(owner, owner, made, limiterSize)
	return made
}
