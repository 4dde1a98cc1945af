// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// pathMessage is a message of TestPathKeepsTheOrder.
type pathMessage struct {
	from   shardcore.Origin
	entity string
	number int
}

// The messages of an origin to an entity arrive once and in order, even while the route and the
// entities change. The loop empties each queue.
func TestPathKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var p shardcore.Path[string, pathMessage]
		sent, arrived := map[string]int{}, map[string]int{}
		arrive := func(m pathMessage) {
			key := fmt.Sprint(m.from, m.entity)
			if arrived[key]++; arrived[key] != m.number {
				t.Fatalf("seed %d: message %d of %s arrived as number %d", seed, m.number, key, arrived[key])
			}
		}
		pass := func(m pathMessage) bool {
			e, to := p.Target(m.from, m.entity)
			if to == shardcore.ToEntity && e != m.entity || to == shardcore.ToHome && m.from == shardcore.Peers {
				t.Fatalf("seed %d: Target(%d, %q) = %q, %d, want the entity, and no home for a message of a peer", seed, m.from, m.entity, e, to)
			}
			if to != shardcore.NoTarget {
				arrive(m)
			}
			return to != shardcore.NoTarget
		}
		handled := func(from shardcore.Origin) { // the loop handles the queue
			if m, found := p.Pass(from, pass); found {
				arrive(m)
				p.Done(from)
			}
		}
		for range 500 {
			id, from := fmt.Sprint("e", r.IntN(3)), shardcore.Origin(r.IntN(2))
			switch r.IntN(8) {
			case 0:
				here := r.IntN(2) == 0
				p.Set(region.DirectRoute{Home: node("b"), Here: here, Own: r.IntN(3) > 0, Peers: here && r.IntN(3) > 0})
			case 1:
				p.Set(p.Restricted(region.DirectRoute{Home: node("b"), Own: r.IntN(2) == 0}))
			case 2:
				p.Add(id, id)
			case 3:
				p.Remove(id)
			case 4:
				handled(from)
			default:
				key := fmt.Sprint(from, id)
				sent[key]++
				if m := (pathMessage{from, id, sent[key]}); p.Waiting(from) || !pass(m) {
					p.Wait(from, m)
				}
			}
		}
		for _, from := range []shardcore.Origin{shardcore.Own, shardcore.Peers} {
			for p.Waiting(from) {
				handled(from)
			}
		}
		for key, n := range sent {
			if arrived[key] != n {
				t.Errorf("seed %d: %d of %d messages of %s arrived, want all", seed, arrived[key], n, key)
			}
		}
	}
}

func TestPathTouchedAndClose(t *testing.T) {
	t.Parallel()
	var p shardcore.Path[*bool, int]
	p.Set(region.DirectRoute{Home: node("a"), Here: true, Own: true})
	p.Add("y", new(bool))
	p.Add("x", new(bool))
	for _, id := range []string{"x", "y", "z"} {
		if touched, to := p.Target(shardcore.Own, id); to == shardcore.ToEntity {
			*touched = true
		}
	}
	take := func(touched *bool) bool {
		was := *touched
		*touched = false
		return was
	}
	if got := fmt.Sprint(p.Touched(take), p.Touched(take)); got != "[x y] []" {
		t.Errorf("Touched() twice = %s, want [x y] []", got)
	}
	p.Wait(shardcore.Own, 1)
	p.Wait(shardcore.Peers, 2)
	if left := p.Close(); fmt.Sprint(left) != "[1 2]" || p.IsOpen() || p.Wait(shardcore.Own, 3) || p.Waiting(shardcore.Own) {
		t.Errorf("Close() = %v, want [1 2] and a path that accepts nothing", left)
	}
}
