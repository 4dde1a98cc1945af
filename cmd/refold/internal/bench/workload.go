// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/store"
)

// The measured entity is a counter. Its events contain bytes that do not compress, so that an event
// encodes to about 200 bytes.
type (
	event interface{ isEvent() }

	add struct {
		eventsourcing.Command[counter, int64]
		N    int64
		Note []byte
	}
	read struct {
		eventsourcing.Command[counter, int64]
	}
	// where returns the node of a sharded counter. echo returns its own content.
	where struct {
		eventsourcing.Command[counter, string]
	}
	echo struct {
		eventsourcing.Command[counter, []byte]
		Note []byte
	}
	added struct {
		N    int64  `msgpack:"n"`
		Note []byte `msgpack:"note"`
	}

	counter struct {
		Sum  int64
		Pad  []byte
		node string `refold:"-"`
	}
)

func (added) isEvent() {}

type (
	counterContext[R any]  = eventsourcing.Context[counter, event, R]
	counterDecision[R any] = eventsourcing.Decision[counter, event, R]
)

func (c *counter) add(ctx *counterContext[int64], m add) counterDecision[int64] {
	return ctx.Persist(added{N: m.N, Note: m.Note}).ReplyFunc(func() int64 { return c.Sum })
}

func (c *counter) read(ctx *counterContext[int64], _ read) counterDecision[int64] {
	return ctx.Reply(c.Sum)
}

func (c *counter) where(ctx *counterContext[string], _ where) counterDecision[string] {
	return ctx.Reply(c.node)
}

func (c *counter) echo(ctx *counterContext[[]byte], m echo) counterDecision[[]byte] {
	return ctx.Reply(m.Note)
}

func (c *counter) apply(ev event) {
	if e, ok := ev.(added); ok {
		c.Sum += e.N
	}
}

func counters(pad int, snapshots eventsourcing.Snapshots[counter, event]) eventsourcing.Type[counter, event] {
	return eventsourcing.Type[counter, event]{
		Name: "counter",
		New: func(string) *counter {
			c := &counter{}
			if pad > 0 {
				c.Pad = make([]byte, pad)
			}
			return c
		},
		Commands: eventsourcing.Commands(
			eventsourcing.On("add", (*counter).add), eventsourcing.On("read", (*counter).read),
			eventsourcing.On("where", (*counter).where), eventsourcing.On("echo", (*counter).echo),
		),
		Apply:     (*counter).apply,
		Events:    codec.Types(codec.Name[added]("added")),
		Snapshots: snapshots,
	}
}

// noteSize makes an event of about 200 bytes.
const noteSize = 190

// pool holds bytes that do not compress.
var pool = sync.OnceValue(func() []byte {
	b := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{1})
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b
})

// noteOf returns n bytes of the pool, different ones for each i.
func noteOf(i, n int) []byte {
	p := pool()
	at := (i * 7919) % (len(p) - n)
	return p[at : at+n : at+n]
}

type local = eventsourcing.Local[counter, event]

// host hosts counters on a store while f runs.
func (s *database) host(ctx context.Context, typ eventsourcing.Type[counter, event], f func(h *local) error) (err error) {
	rt, err := eventsourcing.Open(eventsourcing.Config{ //nolint:contextcheck // the runtime ends with Close
		Store: store.Of(s.journal, s.snapshots), JournalBreaker: journal.BreakerConfig{CallTimeout: nodePatience}, // a slow machine must lower the figures and not cause errors
		RecoveryTimeout: nodePatience,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	h, err := eventsourcing.HostWith(rt, typ, eventsourcing.HostOptions{PassivateAfter: -1})
	if err != nil {
		return err
	}
	return f(h)
}

func (b *run) hosted(ctx context.Context, pad int, f func(s *database, h *local) error) error {
	return b.opened(ctx, func(s *database) error {
		return s.host(ctx, counters(pad, eventsourcing.Snapshots[counter, event]{}), func(h *local) error { return f(s, h) })
	})
}

// occupy persists an event that does not change the sum, because entities without events do not stay in
// memory.
func occupy(ctx context.Context, to eventsourcing.Ref[counter]) error {
	_, err := eventsourcing.Ask(ctx, to, add{})
	return err
}

func refs(h *local, n int) []eventsourcing.Ref[counter] {
	out := make([]eventsourcing.Ref[counter], n)
	for i := range out {
		out[i] = h.Ref(strconv.Itoa(i))
	}
	return out
}

// sampleEvery is the number of operations per measured latency. Reading the clock twice for each
// operation would be a large part of the measured time. Callers begin at different operations: if the
// first operation of each was measured, the start would count sampleEvery times.
const sampleEvery = 8

func sampled(caller, n int) bool { return (caller+n)%sampleEvery == 0 }

type throughput struct {
	ops     int
	elapsed time.Duration
	samples []time.Duration
}

func (t throughput) rate() float64 { return float64(t.ops) / t.elapsed.Seconds() }

// together calls f repeatedly on many goroutines for a time, at least once on each.
func together(callers int, length time.Duration, f func(caller, n int) error) (throughput, error) {
	all := make([]throughput, callers)
	start := time.Now()
	end := start.Add(length)
	err := inParallel(callers, callers, func(i int) error {
		for n := 0; ; n++ {
			timed := sampled(i, n)
			var began time.Time
			if timed {
				if began = time.Now(); n > 0 && began.After(end) {
					return nil
				}
			}
			if err := f(i, n); err != nil {
				return err
			}
			if timed {
				all[i].samples = append(all[i].samples, time.Since(began))
			}
			all[i].ops++
		}
	})
	t := throughput{elapsed: time.Since(start)}
	for _, one := range all {
		t.ops += one.ops
		t.samples = append(t.samples, one.samples...)
	}
	return t, err
}

// inParallel calls f with the numbers below n. Each caller ends with its first error.
func inParallel(n, callers int, f func(i int) error) error {
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := caller; i < n && errs[caller] == nil; i += callers {
				errs[caller] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// until polls a condition until it holds, at most for nodePatience.
func until(ctx context.Context, interval time.Duration, holds func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	for {
		if ok, err := holds(ctx); ok || err != nil {
			return err
		}
		if err := pause(ctx, interval); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func randoms(n int) []*rand.Rand {
	rngs := make([]*rand.Rand, n)
	for i := range rngs {
		rngs[i] = rand.New(rand.NewPCG(uint64(i), 42)) //nolint:gosec // no secret
	}
	return rngs
}

// addAll lets callers add 1 to random counters. Each reply must be at least 1.
func addAll(ctx context.Context, targets []eventsourcing.Ref[counter], callers int, length time.Duration) (throughput, error) {
	rngs := randoms(callers)
	return together(callers, length, func(caller, n int) error {
		to := targets[rngs[caller].IntN(len(targets))]
		sum, err := eventsourcing.Ask(ctx, to, add{N: 1, Note: noteOf(caller*31+n, noteSize)})
		if err == nil && sum < 1 {
			err = fmt.Errorf("wrong reply %d from %v", sum, to)
		}
		return err
	})
}
