// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

const dataCallers = 64

// stats returns the figures of the replicator. With orderSync it first waits until the data of the
// other nodes has arrived.
func (s *server) stats(ctx context.Context, o *order) (r result, err error) {
	err = until(ctx, 5*time.Millisecond, func(ctx context.Context) (_ bool, err error) {
		t, err := s.replicator.Stats(ctx)
		r = result{At: time.Now(), Digest: t.Digest, Stats: &t.Protocol}
		return o.Do == orderStats || t.Synced && (o.Digest == "" || o.Digest == t.Digest), err
	})
	return r, err
}

// newSelf returns the identity of a node that is in no cluster.
func newSelf(name string) (*crdt.Self, error) {
	self, err := identity.New(name)
	if err != nil {
		return nil, err
	}
	return crdt.NewSelf(self)
}

// decode returns the time to decode and keep sets on one core.
func (*server) decode(_ context.Context, o *order) (r result, err error) {
	by, err := newSelf("decoder")
	if err != nil {
		return r, err
	}
	encoded := make([][]byte, o.Count)
	for i := range encoded {
		var set crdt.ORSet[string]
		if set, err = set.Add(by, setElements(i, o.Size)...); err != nil {
			return r, err
		}
		if encoded[i], err = set.ResetDelta().AppendBinary(nil); err != nil {
			return r, err
		}
		r.Bytes += len(encoded[i])
	}
	keys := dataKeys(o.Set, o.Count)
	runtime.GOMAXPROCS(1)
	runtime.GC()
	began := time.Now()
	values := make(map[string]crdt.Value)
	var types *crdt.Types
	for i, data := range encoded {
		if values[keys[i]], err = types.Decode(data); err != nil {
			return r, err
		}
	}
	r.Took, r.Ops = time.Since(began), len(values)
	return r, nil
}

func dataKeys(set string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s-%d", set, i)
	}
	return keys
}

func setElements(key, n int) []string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprintf("element-%d-%d", key%10, i)
	}
	return elements
}

func increment(ctx context.Context, r *ddata.Replicator, key string, level ddata.WriteLevel) error {
	_, err := ddata.Update(ctx, r, ddata.Key[crdt.GCounter](key), level, func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(r.Self(), 1), nil })
	return err
}

func addElements(ctx context.Context, r *ddata.Replicator, key string, level ddata.WriteLevel, elements ...string) error {
	_, err := ddata.Update(ctx, r, ddata.Key[crdt.ORSet[string]](key), level, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
		return s.Add(r.Self(), elements...)
	})
	return err
}

func (s *server) change(ctx context.Context, kind, key string, level ddata.WriteLevel, elements ...string) error {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	if kind == kindCounter {
		return increment(ctx, s.replicator, key, level)
	}
	return addElements(ctx, s.replicator, key, level, elements...)
}

// fill creates keys on all nodes.
func (s *server) fill(ctx context.Context, o *order) (result, error) {
	keys := dataKeys(o.Set, o.From+o.Count)[o.From:]
	return result{}, inParallel(o.Count, dataCallers, func(i int) error {
		return s.change(ctx, o.Kind, keys[i], ddata.WriteAll(), setElements(o.From+i, o.Size)...)
	})
}

// update lets callers update random keys at WriteMajority. In a set, the callers add an element
// that the set already contains.
func (s *server) update(ctx context.Context, o *order) (result, error) {
	keys := dataKeys(o.Set, o.Count)
	elements := make([][]string, 10)
	for i := range elements {
		elements[i] = setElements(i, max(1, o.Size))
	}
	callers := cmp.Or(o.Callers, dataCallers)
	rngs := randoms(callers)
	samples := make([][]sample, callers)
	t, err := together(callers, o.Length, func(caller, n int) error {
		rng := rngs[caller]
		if o.Pause > 0 {
			if err := pause(ctx, o.Pause/2+time.Duration(rng.Int64N(int64(o.Pause)))); err != nil {
				return err
			}
		}
		began := time.Now()
		i := rng.IntN(o.Count)
		err := s.change(ctx, o.Kind, keys[i], ddata.WriteMajority(), elements[i%10][rng.IntN(max(1, o.Size))])
		if o.Pause > 0 || sampled(caller, n) {
			now := time.Now()
			samples[caller] = append(samples[caller], sample{now, now.Sub(began)})
		}
		return err
	})
	r := result{Ops: t.ops, Took: t.elapsed}
	for _, some := range samples {
		r.Samples = append(r.Samples, some...)
	}
	return r, err
}

// check reads all keys. It returns the sum of counters, or verifies the elements of sets.
func (s *server) check(ctx context.Context, o *order) (r result, err error) {
	for i, key := range dataKeys(o.Set, o.Count) {
		if o.Kind == kindCounter {
			c, err := ddata.Get(ctx, s.replicator, ddata.Key[crdt.GCounter](key), ddata.ReadLocal())
			if err != nil {
				return r, err
			}
			r.Sum += c.Value()
			continue
		}
		set, err := ddata.Get(ctx, s.replicator, ddata.Key[crdt.ORSet[string]](key), ddata.ReadLocal())
		if err != nil {
			return r, err
		}
		for _, e := range setElements(i, o.Size) {
			if !set.Contains(e) {
				return r, fmt.Errorf("%s does not hold %q", key, e)
			}
		}
		if set.Len() != o.Size {
			return r, fmt.Errorf("%s holds %d elements, want %d", key, set.Len(), o.Size)
		}
		r.Ops++
	}
	return r, nil
}

// deltaSize returns the average size of an update for one peer, between two results of orderStats.
func deltaSize(before, after *ddata.ProtocolStats) (int, error) {
	const k = "delta"
	messages := after.Sent[k] - before.Sent[k]
	if messages == 0 {
		return 0, errors.New("no update was sent")
	}
	return int((after.SentBytes[k] - before.SentBytes[k]) / messages), nil //nolint:gosec // a size
}
