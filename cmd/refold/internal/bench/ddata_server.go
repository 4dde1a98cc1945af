// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
)

// ServeData is the main function of a process with a replicator. It reads orders from in, one JSON
// object each, and writes the results to out, until in ends.
func ServeData(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger) error {
	s := &dataServer{log: log}
	defer s.stop()
	return obey(in, out, func(o *dataOrder) (dataAnswer, error) { return s.do(ctx, o) })
}

// dataServer is the state of such a process.
type dataServer struct {
	log  *slog.Logger
	node *cluster.Node
	r    *ddata.Replicator

	access nats.Access
	conn   *natsgo.Conn // of the plain client, nil before its first use
}

func (s *dataServer) stop() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.node != nil {
		s.node.Stop()
		<-s.node.Done()
	}
}

func (s *dataServer) do(ctx context.Context, o *dataOrder) (dataAnswer, error) {
	switch o.Do {
	case orderJoin:
		return s.join(ctx, o)
	case orderDecode:
		return decodeSets(o)
	}
	if s.r == nil {
		return dataAnswer{}, errors.New("the process has not joined the cluster")
	}
	switch o.Do {
	case orderAwait:
		return s.await(ctx, func(ddata.Stats) bool { return s.r.ReplicaCount() == o.Count })
	case orderFill:
		return s.fill(ctx, o)
	case orderUpdate:
		return s.update(ctx, o)
	case orderAnswer:
		return s.answer()
	case orderRaw:
		return s.raw(ctx, o)
	case orderStats:
		return s.await(ctx, func(ddata.Stats) bool { return true })
	case orderSync:
		return s.await(ctx, func(t ddata.Stats) bool { return t.Synced && t.Digest == o.Digest })
	case orderSynced:
		return s.await(ctx, func(t ddata.Stats) bool { return t.Synced })
	case orderCheck:
		return s.check(ctx, o)
	case orderLeave:
		err := s.node.Shutdown(ctx)
		return dataAnswer{}, err
	}
	return dataAnswer{}, fmt.Errorf("unknown order %q", o.Do)
}

// join joins the cluster and waits until the node is Up.
func (s *dataServer) join(ctx context.Context, o *dataOrder) (dataAnswer, error) {
	self, err := identity.New(o.Name)
	if err != nil {
		return dataAnswer{}, err
	}
	cfg := cluster.Config{Seeds: o.Seeds, Logger: s.log, PhaseTimeout: map[cluster.Phase]time.Duration{
		cluster.PhaseLeave: nodePatience, cluster.PhaseExiting: nodePatience, cluster.PhaseExitingDone: nodePatience,
	}}
	s.access = *o.Access
	if s.node, err = startNode(self, *o.Access, cfg); err != nil { //nolint:contextcheck // it ends with Stop
		return dataAnswer{}, err
	}
	s.node.Transport().HandleRequest(echoKind, answerRaw)
	if s.r, err = ddata.Start(ctx, s.node, ddata.Config{}); err != nil {
		return dataAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	err = s.node.AwaitUp(ctx)
	return dataAnswer{Node: self, At: time.Now()}, err
}

// await waits for a condition and returns the figures.
func (s *dataServer) await(ctx context.Context, holds func(ddata.Stats) bool) (dataAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	for {
		t, err := s.r.Stats(ctx)
		if err != nil {
			return dataAnswer{}, err
		}
		if holds(t) {
			return dataAnswer{Node: s.node.Self(), At: time.Now(), Digest: t.Digest, Synced: t.Synced, Count: &t.Protocol}, nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return dataAnswer{}, err
		}
	}
}

// decodeSets returns the time to decode and keep sets on one core.
func decodeSets(o *dataOrder) (dataAnswer, error) {
	self, err := identity.New("decoder")
	if err != nil {
		return dataAnswer{}, err
	}
	by, err := crdt.NewSelf(self)
	if err != nil {
		return dataAnswer{}, err
	}
	encoded := make([][]byte, o.Count)
	size := 0
	for i := range encoded {
		var set crdt.ORSet[string]
		if set, err = set.Add(by, setElements(i, o.Size)...); err != nil {
			return dataAnswer{}, err
		}
		if encoded[i], err = set.ResetDelta().AppendBinary(nil); err != nil {
			return dataAnswer{}, err
		}
		size += len(encoded[i])
	}
	keys := dataKeys[crdt.ORSet[string]](o.Set, o.Count)
	runtime.GOMAXPROCS(1)
	runtime.GC()
	began := time.Now()
	values := make(map[string]crdt.Value)
	var types *crdt.Types
	for i, data := range encoded {
		if values[string(keys[i])], err = types.Decode(data); err != nil {
			return dataAnswer{}, err
		}
	}
	took := time.Since(began)
	return dataAnswer{Took: took, Bytes: size, Ops: len(values)}, nil
}

const (
	dataCallers = 64
	// dataTimeout is the time-out of an update.
	dataTimeout = nodePatience
)

// dataKeys returns the keys of a set of keys.
func dataKeys[T crdt.Data[T]](set string, n int) []ddata.Key[T] {
	keys := make([]ddata.Key[T], n)
	for i := range keys {
		keys[i] = ddata.Key[T](fmt.Sprintf("%s-%d", set, i))
	}
	return keys
}

// setElements returns the elements of the set of a key.
func setElements(key, n int) []string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprintf("element-%d-%d", key%10, i)
	}
	return elements
}

// fill creates keys on all nodes.
func (s *dataServer) fill(ctx context.Context, o *dataOrder) (dataAnswer, error) {
	counters, sets := dataKeys[crdt.GCounter](o.Set, o.From+o.Count), dataKeys[crdt.ORSet[string]](o.Set, o.From+o.Count)
	errs := make([]error, dataCallers)
	var wg sync.WaitGroup
	for caller := range dataCallers {
		wg.Go(func() {
			for i := o.From + caller; i < o.From+o.Count && errs[caller] == nil; i += dataCallers {
				if o.Kind == kindCounter {
					errs[caller] = s.count(ctx, counters[i], ddata.WriteAll(), 1)
				} else {
					errs[caller] = s.add(ctx, sets[i], ddata.WriteAll(), setElements(i, o.Size)...)
				}
			}
		})
	}
	wg.Wait()
	return dataAnswer{}, firstError(errs)
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *dataServer) count(ctx context.Context, key ddata.Key[crdt.GCounter], level ddata.WriteLevel, n uint64) error {
	ctx, cancel := context.WithTimeout(ctx, dataTimeout)
	defer cancel()
	_, err := ddata.Update(ctx, s.r, key, level, func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(s.r.Self(), n), nil })
	return err
}

func (s *dataServer) add(ctx context.Context, key ddata.Key[crdt.ORSet[string]], level ddata.WriteLevel, elements ...string) error {
	ctx, cancel := context.WithTimeout(ctx, dataTimeout)
	defer cancel()
	_, err := ddata.Update(ctx, s.r, key, level, func(o crdt.ORSet[string]) (crdt.ORSet[string], error) { return o.Add(s.r.Self(), elements...) })
	return err
}

// update lets callers update random keys at WriteMajority. A set receives one of its elements
// again.
func (s *dataServer) update(ctx context.Context, o *dataOrder) (dataAnswer, error) {
	counters, sets := dataKeys[crdt.GCounter](o.Set, o.Count), dataKeys[crdt.ORSet[string]](o.Set, o.Count)
	elements := make([][]string, 10)
	for i := range elements {
		elements[i] = setElements(i, o.Size)
	}
	callers := cmp.Or(o.Callers, dataCallers)
	rngs := randoms(callers)
	samples := make([][]dataSample, callers)
	c, err := together(callers, o.Length, func(caller, n int) error {
		rng := rngs[caller]
		if o.Pause > 0 {
			if err := pause(ctx, o.Pause/2+time.Duration(rng.Int64N(int64(o.Pause)))); err != nil {
				return err
			}
		}
		began := time.Now()
		i := rng.IntN(o.Count)
		var err error
		if o.Kind == kindCounter {
			err = s.count(ctx, counters[i], ddata.WriteMajority(), 1)
		} else {
			err = s.add(ctx, sets[i], ddata.WriteMajority(), elements[i%10][rng.IntN(o.Size)])
		}
		if o.Pause > 0 || n%sampleEvery == 0 {
			now := time.Now()
			samples[caller] = append(samples[caller], dataSample{now, now.Sub(began)})
		}
		return err
	})
	a := dataAnswer{Ops: c.ops, Took: c.elapsed}
	for _, one := range samples {
		a.Samples = append(a.Samples, one...)
	}
	return a, err
}

// randoms returns one random source per caller.
func randoms(n int) []*rand.Rand {
	rngs := make([]*rand.Rand, n)
	for i := range rngs {
		rngs[i] = rand.New(rand.NewPCG(uint64(i), 42)) //nolint:gosec // no secret
	}
	return rngs
}

// check reads all keys: it returns the sum of counters, or verifies the elements of sets.
func (s *dataServer) check(ctx context.Context, o *dataOrder) (a dataAnswer, err error) {
	counters, sets := dataKeys[crdt.GCounter](o.Set, o.Count), dataKeys[crdt.ORSet[string]](o.Set, o.Count)
	for i := range o.Count {
		if o.Kind == kindCounter {
			c, err := ddata.Get(ctx, s.r, counters[i], ddata.ReadLocal())
			if err != nil {
				return a, err
			}
			a.Sum += c.Value()
			continue
		}
		set, err := ddata.Get(ctx, s.r, sets[i], ddata.ReadLocal())
		if err != nil {
			return a, err
		}
		for _, e := range setElements(i, o.Size) {
			if !set.Contains(e) {
				return a, fmt.Errorf("%s does not hold %q", sets[i], e)
			}
		}
		if set.Len() != o.Size {
			return a, fmt.Errorf("%s holds %d elements, want %d", sets[i], set.Len(), o.Size)
		}
		a.Ops++
	}
	return a, nil
}
