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

// The entity that is measured: a counter whose events carry bytes that do not compress, so that an
// event encodes to about 200 bytes.
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
	added struct {
		N    int64  `msgpack:"n"`
		Note []byte `msgpack:"note"`
	}

	counter struct {
		Sum int64
		Pad []byte
	}
)

func (added) isEvent() {}

type (
	counterContext  = eventsourcing.Context[counter, event, int64]
	counterDecision = eventsourcing.Decision[counter, event, int64]
)

func (c *counter) add(ctx *counterContext, m add) counterDecision {
	return ctx.Persist(added{N: m.N, Note: m.Note}).ReplyFunc(func() int64 { return c.Sum })
}

func (c *counter) read(ctx *counterContext, _ read) counterDecision { return ctx.Reply(c.Sum) }

func (c *counter) apply(ev event) {
	if e, ok := ev.(added); ok {
		c.Sum += e.N
	}
}

// counters is the type of the entity, with a state padded to some size.
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
		Commands:  eventsourcing.Commands(eventsourcing.On("", (*counter).add), eventsourcing.On("", (*counter).read)),
		Apply:     (*counter).apply,
		Events:    codec.Types(codec.Name[added]("added")),
		Snapshots: snapshots,
	}
}

// noteSize makes an event of about 200 bytes.
const noteSize = 190

// notes is a source of bytes that do not compress.
type notes struct{ pool []byte }

func newNotes() notes {
	pool := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{1})
	for i := 0; i < len(pool); i += 8 {
		binary.LittleEndian.PutUint64(pool[i:], rng.Uint64())
	}
	return notes{pool}
}

// bytes returns n bytes, other ones for each i.
func (p notes) bytes(i, n int) []byte {
	at := (i * 7919) % (len(p.pool) - n)
	return p.pool[at : at+n : at+n]
}

// host opens a runtime over a store and hosts counters on it.
func host(ctx context.Context, s *database, typ eventsourcing.Type[counter, event]) (*eventsourcing.Runtime, *eventsourcing.Local[counter, event], error) {
	rt, err := eventsourcing.Open(eventsourcing.Config{ //nolint:contextcheck // the runtime ends with Close
		Store: store.Of(s.journal, s.snapshots), JournalBreaker: journal.BreakerConfig{CallTimeout: nodePatience}, // a slow machine has other figures, and no errors
		RecoveryTimeout: nodePatience,
	})
	if err != nil {
		return nil, nil, err
	}
	h, err := eventsourcing.Host(rt, typ)
	if err != nil {
		return nil, nil, errors.Join(err, rt.Close(ctx))
	}
	return rt, h, nil
}

// refs addresses n entities.
func refs(h *eventsourcing.Local[counter, event], n int) []eventsourcing.Ref[counter] {
	out := make([]eventsourcing.Ref[counter], n)
	for i := range out {
		out[i] = h.Ref(strconv.Itoa(i))
	}
	return out
}

// sampleEvery is how many asks share one measured latency: to read the clock twice for each would
// be a good part of what is measured.
const sampleEvery = 8

// crowd is what a number of callers did.
type crowd struct {
	ops     int
	elapsed time.Duration
	samples []time.Duration
}

func (c crowd) rate() float64 { return float64(c.ops) / c.elapsed.Seconds() }

// together runs a function again and again on many goroutines for a while.
func together(callers int, length time.Duration, f func(caller, n int) error) (crowd, error) {
	var wg sync.WaitGroup
	type one struct {
		ops     int
		samples []time.Duration
		err     error
	}
	all := make([]one, callers)
	start := time.Now()
	end := start.Add(length)
	for i := range callers {
		wg.Go(func() {
			o := &all[i]
			for n := 0; ; n++ {
				timed := n%sampleEvery == 0
				var began time.Time
				if timed {
					if began = time.Now(); n > 0 && began.After(end) { // once at least
						return
					}
				}
				if o.err = f(i, n); o.err != nil {
					return
				}
				if timed {
					o.samples = append(o.samples, time.Since(began))
				}
				o.ops++
			}
		})
	}
	wg.Wait()
	c := crowd{elapsed: time.Since(start)}
	var errs []error
	for _, o := range all {
		c.ops += o.ops
		c.samples = append(c.samples, o.samples...)
		errs = append(errs, o.err)
	}
	return c, errors.Join(errs...)
}

// addAll has many callers add 1 to random entities and checks every reply as far as one caller can
// tell: a counter only grows.
func addAll(ctx context.Context, targets []eventsourcing.Ref[counter], callers int, length time.Duration, p notes) (crowd, error) {
	rngs := make([]*rand.Rand, callers)
	for i := range rngs {
		rngs[i] = rand.New(rand.NewPCG(uint64(i), 42)) //nolint:gosec // no secret
	}
	return together(callers, length, func(caller, n int) error {
		to := targets[rngs[caller].IntN(len(targets))]
		sum, err := eventsourcing.Ask(ctx, to, add{N: 1, Note: p.bytes(caller*31+n, noteSize)})
		if err == nil && sum < 1 {
			err = fmt.Errorf("wrong reply %d from %v", sum, to)
		}
		return err
	})
}
