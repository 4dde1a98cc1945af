// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/testkit/effort"
)

// chaos is a world with random faults, and the checks of its invariants.
type chaos struct {
	*world
	rnd      *rand.Rand // separate source, so that the faults do not depend on the number of messages
	hit      map[string]int
	counters []string
	tried    map[string]uint64                   // sum of all increments by key
	by       map[string]map[identity.Node]uint64 // increments by key and node
	acked    map[string]uint64                   // increments, by key, that a majority has acknowledged
	lost     map[string]uint64                   // increments, by key, that may be lost with their node
	ackedBy  map[string]map[identity.Node]uint64
	removed  []identity.Node
	calm     time.Duration // time since which the network has no faults
	changed  time.Duration // time of the last change of the members
	register uint64        // the last number that was written
	known    uint64        // the highest number that was acknowledged or read
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	cfg := replication.Config{
		PruneInterval: 5 * time.Second, PruneAfter: 10 * time.Second, DurablePruneAfter: 10 * time.Second, MarkerTTL: 2 * time.Minute, DurableMarkerTTL: 2 * time.Minute,
		Durable: []string{"durable*"}, MaxDeltaOps: 10,
	}
	c := &chaos{
		world: newWorld(t, seed, cfg, 3+int(seed%3)), rnd: rand.New(rand.NewPCG(seed, 9)), hit: map[string]int{},
		counters: []string{"a", "b", "durable/c"}, tried: map[string]uint64{}, by: map[string]map[identity.Node]uint64{},
		acked: map[string]uint64{}, lost: map[string]uint64{}, ackedBy: map[string]map[identity.Node]uint64{},
	}
	for _, key := range c.counters {
		c.by[key], c.ackedBy[key] = map[identity.Node]uint64{}, map[identity.Node]uint64{}
	}
	c.lossy = true
	return c
}

// up returns the live members that are Up.
func (c *chaos) up() []*host {
	var up []*host
	for _, m := range c.members {
		if h := c.host(m.Node); m.Status == identity.Up && !h.ended && !h.stopped {
			up = append(up, h)
		}
	}
	return up
}

func (c *chaos) add(h *host, key string) {
	level := local
	if c.rnd.IntN(3) > 0 {
		level = majority
	}
	n := uint64(1 + c.rnd.IntN(5))
	before := h.count(key)
	id := h.world().id()
	req := replication.Request{ID: id, Key: key, Level: level, Timeout: time.Second}
	c.tried[key] += n
	c.by[key][h.self] += n
	h.when[id] = func(r replication.Reply) {
		c.hit["update "+r.Outcome.String()]++
		if r.Outcome == replication.Done && level == majority {
			c.acked[key] += n
			c.ackedBy[key][h.self] += n
		}
	}
	h.step(replication.Update{Request: req, Modify: modify(func(v crdt.GCounter) (crdt.GCounter, error) { return v.Add(h.actor, n), nil })})
	if got := h.count(key); got != before+n {
		c.tb.Fatalf("%v: %v added %d to %d and read %d, want the sum", c.now, h.self, n, before, got)
	}
}

func (h *host) world() *world { return h.w }

func (h *host) count(key string) uint64 {
	v, _, found := h.m.Value(key)
	if !found {
		return 0
	}
	return must(crdt.As[crdt.GCounter](nil, v)).Value()
}

// read reads from a majority and checks that the result includes all increments acknowledged
// before.
func (c *chaos) read(h *host, key string) {
	least := c.acked[key] - c.lost[key]
	id := c.id()
	h.when[id] = func(r replication.Reply) {
		c.hit["get "+r.Outcome.String()]++
		if r.Outcome != replication.Done {
			return
		}
		got := must(crdt.As[crdt.GCounter](nil, r.Value)).Value()
		if got < least || got > c.tried[key] {
			c.tb.Fatalf("%v: %v read %d of %q, want at least the acknowledged %d, at most %d", c.now, h.self, got, key, least, c.tried[key])
		}
	}
	h.step(replication.Get{Request: replication.Request{ID: id, Key: key, Level: majority, Timeout: time.Second}})
}

// registers writes a register on the first node, or reads it on another node with repair. A value
// that was read must not disappear.
func (c *chaos) registers() {
	up := c.up()
	if w := up[0]; w == c.hosts[0] && c.rnd.IntN(2) == 0 {
		c.register++
		n := c.register
		id := c.id()
		w.when[id] = func(r replication.Reply) {
			if r.Outcome == replication.Done {
				c.known = max(c.known, n)
			}
		}
		w.step(replication.Update{
			Request: replication.Request{ID: id, Key: "register", Level: majority, Timeout: time.Second},
			Modify: modify(func(v crdt.LWWRegister[uint64]) (crdt.LWWRegister[uint64], error) {
				return v.SetBy(w.actor, n, func(*crdt.Self, int64, uint64) (int64, error) { return int64(n), nil })
			}),
		})
		return
	}
	h := up[c.rnd.IntN(len(up))]
	least := c.known
	id := c.id()
	h.when[id] = func(r replication.Reply) {
		c.hit["repairing get "+r.Outcome.String()]++
		if r.Outcome != replication.Done {
			return
		}
		got := must(must(crdt.As[crdt.LWWRegister[uint64]](nil, r.Value)).Value())
		if got < least {
			c.tb.Fatalf("%v: %v read %d from the register, want at least %d", c.now, h.self, got, least)
		}
		c.known = max(c.known, got)
	}
	h.step(replication.Get{Request: replication.Request{ID: id, Key: "register", Level: majority, Timeout: time.Second}, RepairPeers: true})
}

// sets adds an element to a set or removes one.
func (c *chaos) sets(h *host) {
	e := fmt.Sprint(c.rnd.IntN(20))
	if c.rnd.IntN(3) == 0 {
		h.drop("set", local, e)
		return
	}
	h.put("set", local, e)
}

func (c *chaos) gone(n identity.Node) {
	c.removed = append(c.removed, n)
	c.changed = c.now
	for _, key := range c.counters {
		// Increments that a majority has acknowledged must not be lost. Other increments may be lost.
		c.lost[key] += 0
	}
}

func (c *chaos) disturb() {
	quiet := c.cut == nil && c.now-c.calm > 6*time.Second && c.now-c.changed > 6*time.Second
	up := c.up()
	switch c.rnd.IntN(30) {
	case 0:
		if c.cut != nil || c.rnd.IntN(4) > 0 {
			return
		}
		c.hit["partition"]++
		side := map[*host]bool{}
		for _, h := range c.hosts {
			side[h] = c.rnd.IntN(2) == 0
		}
		c.cut = func(a, b *host) bool { return side[a] != side[b] }
		c.sendMembers()
	case 1, 2:
		if c.cut != nil {
			c.hit["heal"]++
			c.cut, c.calm = nil, c.now
			c.sendMembers()
		}
	case 3:
		if quiet && len(c.members) < 6 {
			c.hit["join"]++
			h := c.start(fmt.Sprintf("n%d", len(c.hosts)+1), nil)
			c.set(h.self, []identity.Status{identity.Joining, identity.WeaklyUp}[c.rnd.IntN(2)])
			c.sendMembers()
			c.run(time.Duration(c.rnd.IntN(int(3 * time.Second))))
			c.set(h.self, identity.Up)
			c.sendMembersDelayed()
			c.changed = c.now
		}
	case 4:
		if h := up[c.rnd.IntN(len(up))]; quiet && len(up) > 3 && h != c.hosts[0] {
			c.hit["leave"]++
			for _, s := range []identity.Status{identity.Leaving, identity.Exiting} {
				c.set(h.self, s)
				c.sendMembersDelayed()
				c.run(time.Second)
			}
			c.set(h.self, identity.Removed)
			c.gone(h.self)
			c.sendMembersDelayed()
			h.ended = true
		}
	case 5:
		if h := up[c.rnd.IntN(len(up))]; quiet && len(up) > 3 && h != c.hosts[0] {
			c.hit["crash"]++
			h.sync()
			h.ended = true
			c.sendMembersDelayed()
			c.run(time.Duration(c.rnd.IntN(int(5 * time.Second))))
			c.set(h.self, identity.Removed)
			c.gone(h.self)
			c.sendMembersDelayed()
			if c.rnd.IntN(2) == 0 { // the node restarts as a new incarnation
				c.hit["restart"]++
				back := c.start(h.self.Name, maps.Clone(h.disk))
				c.set(back.self, identity.Up)
				c.sendMembersDelayed()
			}
		}
	}
}

// sendMembersDelayed sends the members to all nodes, each with a delay.
func (c *chaos) sendMembersDelayed() {
	for _, i := range c.rnd.Perm(len(c.hosts)) {
		c.hosts[i].sendMembers()
		c.run(time.Duration(c.rnd.IntN(int(200 * time.Millisecond))))
	}
}

func (c *chaos) step() {
	up := c.up()
	h := up[c.rnd.IntN(len(up))]
	key := c.counters[c.rnd.IntN(len(c.counters))]
	switch c.rnd.IntN(6) {
	case 0, 1:
		c.add(h, key)
	case 2, 3:
		c.read(h, key)
	case 4:
		c.registers()
	case 5:
		c.sets(h)
	}
	c.disturb()
	c.run(time.Duration(c.rnd.IntN(int(400 * time.Millisecond))))
}

// settle ends all faults and checks the final state.
func (c *chaos) settle() {
	c.cut, c.lossy = nil, false
	c.sendMembers()
	c.run(3 * time.Second)
	c.converge(2 * time.Minute)
	c.sums("after healing")
	before := c.hosts[0].show("set")
	// The history of all nodes that have left is pruned, and the sums stay the same.
	for range 30 {
		c.run(2 * time.Second)
		c.converge(time.Minute)
		c.sums("during pruning")
	}
	for _, h := range c.alive() {
		if got := h.show("set"); got != before {
			c.tb.Errorf("%v: the set was %q before pruning and is %q afterwards, want no change", h.self, before, got)
		}
		for _, key := range append(slices.Clone(c.counters), "set") {
			v, _, found := h.m.Value(key)
			if !found {
				continue
			}
			for _, n := range v.ModifiedBy() {
				if slices.Contains(c.removed, n) {
					c.tb.Errorf("%v: %q still has history of %v, which has left the cluster", h.self, key, n)
				}
			}
		}
	}
	c.run(3 * time.Minute)
	c.converge(time.Minute)
	c.sums("after the removal of the markers")
	for _, h := range c.alive() {
		n := h.m.Counters()
		if n.Open+n.Log+n.Storing != 0 {
			c.tb.Errorf("%v: %d rounds, %d changes, %d records remain, want 0", h.self, n.Open, n.Log, n.Storing)
		}
		c.hit["pruned"] += int(n.Pruned)
		c.hit["cleared"] += int(n.Cleared)
		c.hit["delta gap"] += int(n.DeltasGap)
		c.hit["delta applied"] += int(n.DeltasApplied)
		c.hit["delta known"] += int(n.DeltasKnown)
		c.hit["second wave"] += int(n.SecondWaves)
		c.hit["repaired"] += int(n.Repaired)
		c.hit["compared equal"] += int(n.Equal)
		for k := range replication.Kinds {
			c.hit[k.String()] += int(n.Received[k])
		}
	}
}

func (c *chaos) sums(when string) {
	for _, key := range c.counters {
		// All increments of live nodes are present, and the acknowledged increments of other nodes.
		least := uint64(0)
		for _, h := range c.hosts {
			if slices.Contains(c.removed, h.self) {
				least += c.ackedBy[key][h.self]
			} else {
				least += c.by[key][h.self]
			}
		}
		for _, h := range c.alive() {
			if got := h.count(key); got < least || got > c.tried[key] {
				c.tb.Fatalf("%v, %s: %v has %d in %q, want %d to %d", c.now, when, h.self, got, key, least, c.tried[key])
			}
		}
	}
}

// A seed determines the whole run, byte for byte.
func TestSeedDeterminesTrace(t *testing.T) {
	t.Parallel()
	trace := func(seed uint64) string {
		c := newChaos(t, seed)
		c.keep = true
		h := sha256.New()
		for range 150 {
			c.step()
		}
		for _, l := range c.sent {
			_, _ = fmt.Fprintln(h, l.at, l.from.self, l.to.self, l.send.Bulk)
			h.Write(l.send.Data)
		}
		return fmt.Sprintf("%d messages, %x", len(c.sent), h.Sum(nil))
	}
	for seed := range uint64(5) {
		if once, again := trace(seed), trace(seed); once != again {
			t.Errorf("seed %d: first run %s, second run %s, want equal traces", seed, once, again)
		}
	}
}

// TestChaos simulates nodes with message loss, delay and duplication, partitions, crashes, joins
// and leaves.
func TestChaos(t *testing.T) {
	t.Parallel()
	const parts = 4
	seeds := effort.Count[uint64](16, 120, 2400)
	hits := make([]map[string]int, parts)
	t.Run("seeds", func(t *testing.T) {
		for part := range uint64(parts) {
			hits[part] = map[string]int{}
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				for seed := part; seed < seeds; seed += parts {
					func() {
						defer func() {
							if t.Failed() {
								t.Logf("seed %d", seed)
							}
						}()
						c := newChaos(t, seed)
						for range 250 {
							c.step()
						}
						c.settle()
						for subject, n := range c.hit {
							hits[part][subject] += n
						}
					}()
					if t.Failed() {
						return
					}
				}
			})
		}
	})
	hit := map[string]int{}
	for _, h := range hits {
		for subject, n := range h {
			hit[subject] += n
		}
	}
	want := []string{
		"partition", "heal", "join", "leave", "crash", "restart", "pruned", "cleared", "delta gap", "delta applied", "delta known", "second wave",
		"repaired", "compared equal", "update done", "update timed out", "get done", "get timed out", "repairing get done",
	}
	for k := replication.KindWrite; k < replication.Kinds; k++ {
		if k != replication.KindUses && k != replication.KindPart {
			want = append(want, k.String())
		}
	}
	for _, subject := range want {
		if hit[subject] == 0 {
			t.Errorf("%q did not occur", subject)
		}
	}
	t.Log(hit)
}
