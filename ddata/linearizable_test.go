// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/plugins/inmem"
)

const latest = ddata.Key[crdt.LWWRegister[int]]("latest")

// history records the writes and reads of a register, with their times.
type history struct {
	mu  sync.Mutex
	ops []porcupine.Operation
}

func (h *history) add(client, written, read int, from, to time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: written, Output: read, Call: int64(from), Return: int64(to)})
}

// A register with a single writer is linearizable if it is written and read at majorities with
// RepairPeers. This holds under all faults of the network while the members stay the same. An independent checker searches for an
// order of all operations, including failed ones, that explains the results.
func TestRegisterIsLinearizable(t *testing.T) {
	t.Parallel()
	seeds := effort.Count[uint64](3, 6, 200)
	failed := 0
	for seed := range seeds {
		in(t, func(w *world) {
			h := w.useRegister(rand.New(rand.NewPCG(seed, 7)), ddata.ReadMajority().RepairPeers())
			failed += h.check(w.T, seed)
		})
	}
	if failed == 0 {
		t.Error("no write failed, so the test has not covered failures")
	}
}

// useRegister makes one node write and all nodes read for a minute, while frames are delayed and
// lost, and nodes are partitioned.
func (w *world) useRegister(rng *rand.Rand, level ddata.ReadLevel) *history {
	names := []string{"a", "b", "c", "d", "e"}
	w.downing.Strategy = downing.Off // a majority of fewer members need not overlap an earlier one
	rs := w.replicators(ddata.Config{}, names...)
	defer w.network.Inject(inmem.Fault{Drop: 0.05, Delay: time.Millisecond, Jitter: 50 * time.Millisecond})()
	h, begun := &history{}, time.Now()
	var running sync.WaitGroup
	seen := func(f func(ctx context.Context)) (from, to time.Duration) {
		ctx, cancel := context.WithTimeout(w.Context(), 300*time.Millisecond)
		defer cancel()
		from = time.Since(begun)
		f(ctx)
		return from, time.Since(begun)
	}
	for i, r := range rs {
		pauses := rand.New(rand.NewPCG(rng.Uint64(), 0))
		running.Go(func() {
			for n := 1; time.Since(begun) < time.Minute; n++ {
				var err error
				var value crdt.LWWRegister[int]
				if i == 0 && n%2 == 1 {
					from, to := seen(func(ctx context.Context) {
						_, err = ddata.Update(ctx, r, latest, ddata.WriteMajority(), func(g crdt.LWWRegister[int]) (crdt.LWWRegister[int], error) { return g.Set(r.Self(), n) })
					})
					if err != nil {
						to = math.MaxInt64 // other nodes may read the value at any later time
					}
					h.add(i, n, 0, from, to)
				} else {
					from, to := seen(func(ctx context.Context) { value, err = ddata.Get(ctx, r, latest, level) })
					if read, _ := value.Value(); err == nil {
						h.add(i, 0, read, from, to)
					}
				}
				<-time.After(time.Duration(pauses.IntN(int(400 * time.Millisecond))))
			}
		})
	}
	for time.Since(begun) < time.Minute {
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		cut := 1 + rng.IntN(len(names)-1)
		heal := w.network.Partition(names[:cut:cut], names[cut:])
		<-time.After(time.Duration(rng.IntN(int(3 * time.Second))))
		heal()
		<-time.After(time.Duration(rng.IntN(int(3 * time.Second))))
	}
	running.Wait()
	return h
}

// check checks the history of a register whose initial value is 0. It returns the number of failed
// writes.
func (h *history) check(t *testing.T, seed uint64) (failed int) {
	t.Helper()
	model := porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, in, out any) (bool, any) {
			if in.(int) != 0 { //nolint:errcheck,forcetypeassert // always of this type
				return true, in
			}
			return out == state, state
		},
	}
	reads := 0
	for _, op := range h.ops {
		if op.Return == math.MaxInt64 {
			failed++
		}
		if op.Input == 0 {
			reads++
		}
	}
	if reads < 100 {
		t.Errorf("seed %d: only %d reads succeeded, want 100", seed, reads)
	}
	switch result := porcupine.CheckOperationsTimeout(model, h.ops, time.Minute); result {
	case porcupine.Ok:
	case porcupine.Illegal:
		t.Errorf("seed %d: the results of %d operations are not linearizable", seed, len(h.ops))
	case porcupine.Unknown:
		t.Errorf("seed %d: timeout while searching for an order of %d operations", seed, len(h.ops))
	}
	return failed
}
