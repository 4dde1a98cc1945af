// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// A history records the commands of several clients to one ledger, and the replies.
type history struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand // of the test's own goroutine
	typ     eventsourcing.Type[ledger, entry]
	journal *slowJournal
	faulty  *journaltest.Faulty
	store   *inmem.SnapshotStore
	readers bool // some operations only read; false if two runtimes write
	patient bool // callers have no deadline
	shared  bool // several runtimes share the journal, with HostOptions.SharedJournal
	kept    *keeping
	clock   atomic.Int64

	clients   int  // 8 by default
	workers   bool // HostOptions.WorkersOnly
	immediate bool // the journal is immediate

	turns [2]atomic.Int64 // taken by workers and by callers

	mu        sync.Mutex
	now       []*eventsourcing.Local[ledger, entry] // the runtimes to which clients send commands
	recorded  []porcupine.Operation
	unknown   int
	surelyNot int
	rivalry   []error // conflicts, and histories that the replay filter rejected
}

// operation is one command of a history: a post, or a read if count is 0.
type operation struct {
	op, count int
	odd       bool
}

// outcome is the outcome of a command. Hash and Len are 0 if they are unknown.
type outcome struct {
	known, refused bool
	seen           seen
}

// newHistory prepares a journal, within a synctest bubble.
func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), typ: ledgerType(), readers: true, clients: 8}
	h.typ.Commands = eventsourcing.Commands(
		eventsourcing.On("", func(l *ledger, ctx *ledgerContext, c post) ledgerDecision { h.countTurn(); return l.post(ctx, c) }),
		eventsourcing.On("", func(l *ledger, ctx *ledgerContext, c look) ledgerDecision { h.countTurn(); return l.look(ctx, c) }),
	)
	h.kept = &keeping{Journal: inmem.NewJournal()}
	h.faulty = journaltest.NewFaulty(h.kept)
	h.journal = &slowJournal{Journal: h.faulty, rng: rand.New(rand.NewPCG(seed, 2))}
	h.store = inmem.NewSnapshotStore()
	h.typ.DisablePipelining = seed%2 == 1
	return h
}

func (h *history) countTurn() {
	if onCaller() {
		h.turns[1].Add(1)
	} else {
		h.turns[0].Add(1)
	}
}

// keeping keeps the events that are deleted, so that a test sees the complete history of an entity.
type keeping struct {
	journal.Journal
	mu      sync.Mutex
	deleted []journal.Event
}

func (k *keeping) DeleteTo(ctx context.Context, id string, to uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for e, err := range k.Replay(ctx, id, uint64(len(k.deleted))+1, to) {
		if err != nil {
			return err
		}
		k.deleted = append(k.deleted, e)
	}
	return k.Journal.DeleteTo(ctx, id, to)
}

// slowJournal delays each append, or stalls it until it is released.
type slowJournal struct {
	journal.Journal
	mu    sync.Mutex
	rng   *rand.Rand
	stall int           // how many appends to stall
	gate  chan struct{} // stalls the appends
	first chan struct{} // closed when one waits

	byCallers atomic.Int64 // appends on goroutines of callers
}

// Local implements snapshot.Local, so that callers append.
func (j *slowJournal) Local() bool { return true }

// hold stalls the next appends until the returned function is called. Then they are committed,
// whether or not their callers still wait. The channel is closed when the first append waits.
func (j *slowJournal) hold(appends int) (waits <-chan struct{}, release func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	gate := make(chan struct{})
	j.stall, j.gate, j.first = appends, gate, make(chan struct{})
	return j.first, sync.OnceFunc(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.stall = 0
		close(gate)
	})
}

func (j *slowJournal) Append(ctx context.Context, writes []journal.Write) []error {
	if onCaller() {
		j.byCallers.Add(1)
	}
	j.mu.Lock()
	pause := time.Duration(j.rng.IntN(1000)) * time.Microsecond
	var gate chan struct{}
	if j.stall > 0 {
		j.stall--
		if gate = j.gate; j.first != nil {
			close(j.first)
			j.first = nil
		}
	}
	j.mu.Unlock()
	if gate != nil {
		<-gate
		errs := j.Journal.Append(context.WithoutCancel(ctx), writes)
		if ctx.Err() == nil {
			return errs
		}
		return slices.Repeat([]error{context.Cause(ctx)}, len(writes))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return j.Journal.Append(ctx, writes)
}

// open starts a runtime, to which clients send from then on.
func (h *history) open() *eventsourcing.Runtime {
	h.t.Helper()
	cfg := eventsourcing.Config{Store: store.Of(h.journal, h.store), Workers: 2}
	if h.immediate {
		cfg.Store = store.Of(immediately{h.faulty}, h.store)
	}
	cfg.JournalBreaker.MaxFailures = 1000 // an open breaker would delay the test
	rt, err := eventsourcing.Open(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	opts := eventsourcing.HostOptions{SharedJournal: h.shared, WorkersOnly: h.workers, MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond}
	if h.seed%5 == 0 {
		opts.PassivateAfter = 2 * time.Millisecond
	}
	entities, err := eventsourcing.HostWith(rt, h.typ, opts)
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = append(h.now, entities)
	return rt
}

// dropOldest removes the oldest runtime from the targets of the clients.
func (h *history) dropOldest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now[1:]
}

// ref returns a reference to the ledger in one of the runtimes.
func (h *history) ref(client int) eventsourcing.Ref[ledger] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now[client%len(h.now)].Ref("1")
}

// client sends operations until the given number of them has a reply or an unknown outcome.
func (h *history) client(number, operations int) {
	rng := rand.New(rand.NewPCG(h.seed, uint64(100+number)))
	for n, attempt := 0, 1; n < operations; attempt++ {
		in := operation{op: number*1_000_000 + attempt, count: 1 + rng.IntN(3)/2, odd: h.readers && rng.IntN(5) == 0}
		if h.readers && rng.IntN(3) == 0 {
			in = operation{}
		}
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if !h.patient && rng.IntN(6) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Microsecond)
		}
		if h.immediate {
			<-time.After(time.Duration(rng.IntN(1000)) * time.Microsecond) // in place of the pauses of slowJournal
		}
		call := h.clock.Add(1)
		out, err := h.ask(ctx, number, in, rng.IntN(8) == 0)
		cancel()
		h.record(number, in, out, err, call)
		if certainty(err) != surelyNot {
			n++
		} else { // the operation had no effect, so it does not count
			<-time.After(time.Duration(rng.IntN(2000)) * time.Microsecond) // to pace the load, not to wait for anything
		}
	}
}

func (h *history) ask(ctx context.Context, client int, in operation, then bool) (seen, error) {
	if in.count == 0 {
		return eventsourcing.Ask(ctx, h.ref(client), look{})
	}
	return eventsourcing.Ask(ctx, h.ref(client), post{Op: in.op, Count: in.count, Odd: in.odd, Then: then})
}

func (h *history) record(client int, in operation, out seen, err error, call int64) {
	end := h.clock.Add(1)
	o := outcome{known: err == nil, seen: out, refused: errors.Is(err, errEven)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, filtered := errors.AsType[*journal.ViolationError](err); filtered || errors.Is(err, eventsourcing.ErrConflict) {
		h.rivalry = append(h.rivalry, err)
	}
	switch certainty(err) {
	case surelyNot:
		h.surelyNot++
		if in.count == 0 {
			return
		}
		in.count = -in.count // negative: the entries must not be stored
	case maybeDone:
		h.unknown++
		if in.count == 0 {
			return // a read without a reply has no effect
		}
		end = math.MaxInt64
	case surelyDone:
	}
	h.recorded = append(h.recorded, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: o, Return: end})
}

// log returns the final content of the journal: the operation of each entry.
func (h *history) log() []int {
	h.t.Helper()
	registry := codec.Types(codec.Name[entry]("entry"))
	var log []int
	all := h.kept.deleted
	for e, err := range h.kept.Replay(context.Background(), "ledger|1", uint64(len(all))+1, journal.MaxSequenceNr) {
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, e)
	}
	for _, e := range all {
		if e.IsFence() {
			continue
		}
		decoded, err := registry.DecodeAppend(nil, e.Manifest, e.Payload)
		if err != nil {
			h.t.Fatal(err)
		}
		log = append(log, decoded[0].(entry).Op) //nolint:errcheck,forcetypeassert // there is no other event
	}
	return log
}

// checkHistory searches for an order of all operations that agrees with the order in the journal
// and explains every reply.
func (h *history) checkHistory() {
	h.t.Helper()
	log := h.log()
	stored := make(map[int]int)
	states := []seen{{}}
	for i, op := range log {
		stored[op]++
		states = append(states, states[i].with(op))
	}
	var operations []porcupine.Operation
	for _, o := range h.recorded {
		in, out := o.Input.(operation), o.Output.(outcome) //nolint:errcheck,forcetypeassert // always these
		n := stored[in.op]
		delete(stored, in.op)
		switch {
		case in.count < 0:
			if n > 0 {
				h.t.Errorf("operation %d is stored, but its reply was not done", in.op)
			}
			continue
		case in.count > 0 && n != 0 && n != in.count:
			h.t.Errorf("%[3]d entries of operation %[1]d are stored, want %[2]d", in.op, in.count, n)
		case in.count > 0 && n == 0 && !out.known && !out.refused:
			if o.Return != math.MaxInt64 {
				h.t.Errorf("operation %d is not stored, but its reply was done", in.op)
			}
			continue // the operation had no effect
		}
		operations = append(operations, o)
	}
	for op := range stored {
		h.t.Errorf("operation %d is stored without a command", op)
	}
	const limit = time.Minute
	switch result, _ := porcupine.CheckOperationsVerbose(ledgerModel(log, states), operations, limit); result {
	case porcupine.Ok:
	case porcupine.Illegal:
		h.t.Errorf("no order explains the answers to %d operations\n%s", len(operations), h.describe(log, states))
	case porcupine.Unknown:
		h.t.Errorf("the search timed out: no decision about an order of %d operations", len(operations))
	}
}

// ledgerModel is a model of a ledger whose entries are known in advance. Its state is the number of
// entries so far.
func ledgerModel(log []int, states []seen) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			n := state.(int)                               //nolint:errcheck,forcetypeassert // always an int
			in, out := input.(operation), output.(outcome) //nolint:errcheck,forcetypeassert // always these
			fits := func(n int) bool { return !out.known || out.seen == states[n] }
			switch {
			case out.refused:
				return n%2 == 0, n
			case in.count == 0:
				return fits(n), n
			}
			after := n + in.count
			ok := after <= len(log) && (!in.odd || n%2 == 1) && fits(after) &&
				!slices.ContainsFunc(log[n:after], func(op int) bool { return op != in.op })
			return ok, after
		},
	}
}

// describe prints the commands in order, the number of entries at each reply, and the stored
// entries.
func (h *history) describe(log []int, states []seen) string {
	var b strings.Builder
	slices.SortFunc(h.recorded, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, o := range h.recorded {
		in, out := o.Input.(operation), o.Output.(outcome) //nolint:errcheck,forcetypeassert // always these
		fmt.Fprintf(&b, "%4d-%-4d client %d: %+v: ", o.Call, min(o.Return, 9999), o.ClientId, in)
		switch {
		case out.refused:
			b.WriteString("refused\n")
		case out.known:
			fmt.Fprintf(&b, "saw %d entries, state as stored: %t\n", out.seen.Len, out.seen.Len < len(states) && states[out.seen.Len] == out.seen)
		default:
			b.WriteString("unknown, or not done if the count is negative\n")
		}
	}
	fmt.Fprintf(&b, "stored: %v", log)
	return b.String()
}

// close ends the runtimes and the stalled appends.
func (h *history) close(rts ...*eventsourcing.Runtime) {
	h.t.Helper()
	h.faulty.Reset()
	for _, rt := range rts {
		if err := rt.Close(context.Background()); err != nil {
			h.t.Errorf("close: %v", err)
		}
	}
}

func (h *history) String() string {
	return fmt.Sprintf("seed %d: %d operations, %d unknown, %d surely not done, turns of workers %d, of callers %d",
		h.seed, len(h.recorded), h.unknown, h.surelyNot, h.turns[0].Load(), h.turns[1].Load())
}
