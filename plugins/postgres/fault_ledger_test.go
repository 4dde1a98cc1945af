// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	db "github.com/refold-io/refold/store"
)

// A ledger stores its operations in order.
type (
	// post adds an operation as Count events of one unit. The reply is the number of events after
	// it.
	post struct {
		eventsourcing.Command[ledger, int]
		Op, Count int
		Padding   []byte
	}
	// list returns all operations. An operation with several events is returned once for each
	// event.
	list struct {
		eventsourcing.Command[ledger, []int]
	}

	entry struct {
		Op      int
		Padding []byte
	}

	ledger struct{ Ops []int }
)

func (l *ledger) post(ctx *eventsourcing.Context[ledger, entry, int], c post) eventsourcing.Decision[ledger, entry, int] {
	return ctx.Persist(slices.Repeat([]entry{{c.Op, c.Padding}}, c.Count)...).ReplyFunc(func() int { return len(l.Ops) })
}

func (l *ledger) list(ctx *eventsourcing.Context[ledger, entry, []int], _ list) eventsourcing.Decision[ledger, entry, []int] {
	return ctx.Reply(slices.Clone(l.Ops))
}

func (l *ledger) apply(e entry) { l.Ops = append(l.Ops, e.Op) }

func ledgerType() eventsourcing.Type[ledger, entry] {
	return eventsourcing.Type[ledger, entry]{
		Name:     "ledger",
		Commands: eventsourcing.Commands(eventsourcing.On("", (*ledger).post), eventsourcing.On("", (*ledger).list)),
		Apply:    (*ledger).apply,
		Events:   codec.Types(codec.Name[entry]("entry")),
	}
}

// ledgerRuntime is a runtime with ledgers on a journal.
type ledgerRuntime struct {
	rt      *eventsourcing.Runtime
	ledgers *eventsourcing.Local[ledger, entry]
}

// openLedgers opens a runtime with short time-outs and pauses.
func openLedgers(t *testing.T, j journal.Journal, callTimeout time.Duration) *ledgerRuntime {
	t.Helper()
	rt, err := eventsourcing.Open(eventsourcing.Config{
		Store:          db.Of(j, nil),
		JournalBreaker: journal.BreakerConfig{CallTimeout: callTimeout, MaxFailures: 5, ResetTimeout: 50 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ledgers, err := eventsourcing.HostWith(rt, ledgerType(), eventsourcing.HostOptions{MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return &ledgerRuntime{rt, ledgers}
}

func (h *ledgerRuntime) close(t *testing.T) {
	t.Helper()
	ctx, cancel := withHangTimeout(t)
	defer cancel()
	if err := h.rt.Close(ctx); err != nil {
		t.Errorf("close the runtime: %v", err)
	}
}

// result is the result of an operation for its client.
type result struct {
	op, count int
	err       error
	length    int
}

// notDone reports whether the operation was certainly not executed. The handlers of a ledger never
// refuse, so only ErrOutcomeUnknown leaves the outcome open.
func (k result) notDone() bool {
	return k.err != nil && !errors.Is(k.err, eventsourcing.ErrOutcomeUnknown)
}

// operations are the operations of a test.
type operations struct {
	ids     []string
	padding []byte // of each event

	done atomic.Bool // an operation was

	mu    sync.Mutex
	next  int
	known map[string][][]result // by ID and client, in order
}

func newOperations(ids int) *operations {
	b := &operations{known: map[string][][]result{}}
	for i := range ids {
		b.ids = append(b.ids, fmt.Sprint(i))
	}
	return b
}

// client posts operations to one ledger in sequence, until it has posted n, stop is closed, and
// any operation has succeeded.
func (b *operations) client(ctx context.Context, h *ledgerRuntime, id string, rng *rand.Rand, n int, stop <-chan struct{}, maxTimeout time.Duration) {
	var mine []result
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.known[id] = append(b.known[id], mine)
	}()
	for i := 0; ; i++ {
		if i >= n && b.done.Load() {
			select {
			case <-stop:
				return
			default:
			}
		}
		b.mu.Lock()
		op := b.next
		b.next++
		b.mu.Unlock()
		k := result{op: op, count: 1 + rng.IntN(2)}
		asking, cancel := context.WithTimeout(ctx, time.Duration(1+rng.Int64N(int64(maxTimeout))))
		k.length, k.err = eventsourcing.Ask(asking, h.ledgers.Ref(id), post{Op: op, Count: k.count, Padding: b.padding})
		cancel()
		if k.err == nil {
			b.done.Store(true)
		}
		mine = append(mine, k)
	}
}

// run starts clients of each ledger. The clients use the runtimes in turn. They post operations
// until each client has posted n, disturb has returned, and an operation has succeeded.
func (b *operations) run(t *testing.T, runtimes []*ledgerRuntime, n int, maxTimeout time.Duration, disturb func(rng *rand.Rand)) {
	t.Helper()
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for i, id := range b.ids {
		for c := range 3 {
			clients.Go(func() {
				b.client(t.Context(), runtimes[c%len(runtimes)], id, rand.New(rand.NewPCG(uint64(i), uint64(c))), n, stop, maxTimeout)
			})
		}
	}
	disturb(rand.New(rand.NewPCG(1, 2)))
	close(stop)
	clients.Wait()
}

// checkResults compares the results of the clients with the state in a new runtime.
func (b *operations) checkResults(t *testing.T, h *ledgerRuntime) {
	t.Helper()
	var done, not, unknown int
	for _, id := range b.ids {
		ctx, cancel := withHangTimeout(t)
		ops, err := eventsourcing.Ask(ctx, h.ledgers.Ref(id), list{})
		cancel()
		if err != nil {
			t.Fatalf("ledger %s: %v", id, err)
		}
		at := map[int][]int{} // the numbers of an operation's events
		for i, op := range ops {
			at[op] = append(at[op], i+1)
		}
		for _, client := range b.known[id] {
			last := 0
			for _, k := range client {
				numbers := at[k.op]
				delete(at, k.op)
				switch n := len(numbers); {
				case n > 0 && (n != k.count || numbers[n-1]-numbers[0] != n-1):
					t.Errorf("ledger %s: operation %d has %d events, but is stored at %v", id, k.op, k.count, numbers)
				case k.err == nil && (n == 0 || numbers[n-1] != k.length):
					t.Errorf("ledger %s: operation %d was acknowledged at %d, but is at %v", id, k.op, k.length, numbers)
				case k.notDone() && n > 0:
					t.Errorf("ledger %s: operation %d failed with %v, but is at %v", id, k.op, k.err, numbers)
				case n > 0 && numbers[0] < last:
					t.Errorf("ledger %s: operation %d is at %v, after a later one at %d", id, k.op, numbers, last)
				case n > 0:
					last = numbers[0]
				}
				switch {
				case k.err == nil:
					done++
				case k.notDone():
					not++
				default:
					unknown++
				}
			}
		}
		if len(at) > 0 {
			t.Errorf("ledger %s: unexpected operations: %v", id, at)
		}
	}
	t.Logf("%d operations were executed, %d were not, %d have an unknown outcome", done, not, unknown)
	if done == 0 || not+unknown == 0 {
		t.Error("no operation was executed, or all operations were executed; want at least 1 of each outcome")
	}
}
