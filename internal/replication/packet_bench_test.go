// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/replication"
)

// cluster is a set of machines whose packets arrive at once, with a clock on which each update
// takes some time.
type cluster struct {
	tb   testing.TB
	all  []one
	now  time.Duration
	took []time.Duration // total time of each machine
	done int
}

func (c *cluster) step(i int, f func(now time.Duration) replication.Effects) {
	began := time.Now()
	e := f(c.now)
	c.took[i] += time.Since(began)
	for k := range e.Replies {
		if e.Replies[k].Outcome != replication.Done {
			c.tb.Fatalf("got reply %+v, want Done", e.Replies[k])
		}
		c.done++
	}
	for _, s := range e.Send {
		c.send(i, s)
	}
	c.all[i].Reuse(e)
}

func (c *cluster) send(from int, s replication.Send) {
	for i := range c.all {
		if c.all[i].node == s.To {
			c.step(i, func(now time.Duration) replication.Effects {
				return c.all[i].Step(now, replication.Batch{Packets: []replication.Packet{{From: c.all[from].node, Payload: s.Payload}}})
			})
		}
	}
}

func (c *cluster) tick() {
	for i := range c.all {
		if c.all[i].Next() <= c.now {
			c.step(i, c.all[i].Tick)
		}
	}
}

// BenchmarkMajority measures the work of all nodes for an update at WriteMajority, without the
// transport.
func BenchmarkMajority(b *testing.B) {
	const keys, size, batch = 10_000, 100, 4
	elements := make([]string, size)
	for i := range elements {
		elements[i] = fmt.Sprintf("element-7-%d", i)
	}
	kinds := map[string]func(by *crdt.Self, v crdt.Value, element ...string) (crdt.Value, error){
		"GCounter": func(by *crdt.Self, v crdt.Value, _ ...string) (crdt.Value, error) {
			c, err := crdt.As[crdt.GCounter](nil, v)
			if err != nil {
				return v, err
			}
			return (*crdt.Types)(nil).Value(c.Add(by, 1))
		},
		"ORSet": func(by *crdt.Self, v crdt.Value, element ...string) (crdt.Value, error) {
			s, err := crdt.As[crdt.ORSet[string]](nil, v)
			if err == nil {
				s, err = s.Add(by, element...)
			}
			if err != nil {
				return v, err
			}
			return (*crdt.Types)(nil).Value(s)
		},
	}
	for _, nodes := range []int{3, 5} {
		for _, kind := range []string{"GCounter", "ORSet"} {
			modify := kinds[kind]
			b.Run(fmt.Sprintf("%s/%d", kind, nodes), func(b *testing.B) {
				c := &cluster{tb: b, took: make([]time.Duration, nodes), all: machines(b, nodes, func(cfg *replication.Config) { cfg.GossipInterval = 2 * time.Second })}
				rng := rand.New(rand.NewPCG(1, 2))
				names := make([]string, keys)
				id := uint64(0)
				update := func(key string, level replication.LevelKind, element ...string) replication.Input {
					id++
					return replication.Update{Request: replication.Request{ID: id, Key: key, Level: replication.Level{Kind: level}}, Modify: func(v crdt.Value) (crdt.Value, error) {
						return modify(c.all[0].actor, v, element...)
					}}
				}
				for i := range names {
					names[i] = fmt.Sprintf("key-%d", i)
					c.step(0, func(now time.Duration) replication.Effects {
						return c.all[0].Step(now, replication.Batch{Inputs: []replication.Input{update(names[i], replication.All, elements...)}})
					})
				}
				for range 200 {
					c.now += 100 * time.Millisecond
					c.tick()
				}
				clear(c.took)
				c.done = 0
				b.ReportAllocs()
				asked := 0
				for b.Loop() {
					if asked++; asked%batch != 0 {
						continue
					}
					c.now += batch * 20 * time.Microsecond
					in := make([]replication.Input, 0, batch)
					for range batch {
						in = append(in, update(names[rng.IntN(keys)], replication.Majority, elements[rng.IntN(size)]))
					}
					c.step(0, func(now time.Duration) replication.Effects { return c.all[0].Step(now, replication.Batch{Inputs: in}) })
					c.tick()
				}
				if c.done != asked/batch*batch {
					b.Fatalf("%d of %d requests are done, want all batches", c.done, asked)
				}
				others := time.Duration(0)
				for _, t := range c.took[1:] {
					others += t
				}
				b.ReportMetric(float64(c.took[0].Nanoseconds())/float64(c.done), "ns/writer")
				b.ReportMetric(float64(others.Nanoseconds())/float64(c.done), "ns/others")
			})
		}
	}
}
