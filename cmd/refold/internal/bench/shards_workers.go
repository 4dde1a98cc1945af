// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
)

// What a parent can order a process with a region to do.
const (
	shardJoin    = "join"    // the cluster, and start the region
	shardAwait   = "await"   // as many regions as Count
	shardWhere   = "where"   // ask the entities up to Count where they are
	shardEcho    = "echo"    // have callers ask entities for a time, as Way says
	shardFill    = "fill"    // wake the entities of its part
	shardLoad    = "load"    // begin to ask entities, at a rate
	shardHalt    = "halt"    // stop that, and wait for the answers
	shardTimes   = "times"   // how long asks took that were due between From and To
	shardCheck   = "check"   // that nothing is lost of what was acknowledged
	shardHomes   = "homes"   // how many shards each node has
	shardProbe   = "probe"   // ask an entity of each shard until it answers
	shardSeen    = "seen"    // what the node has learned of others
	shardRuns    = "runs"    // how many entities run
	shardPrepare = "prepare" // for the end of all nodes
	shardLeave   = "leave"   // the cluster
)

// Whom the callers of shardEcho ask.
const (
	wayHere   = "here"   // entities on the same node, through the region
	wayThere  = "there"  // entities on other nodes, through the region
	wayHost   = "host"   // entities of a local host
	wayRaw    = "raw"    // a subscription of the bare client of NATS, in the process that was told to serve it
	wayAnswer = "answer" // serves it
)

// shardSetup says what a node is like.
type shardSetup struct {
	// Seeds and Access are those of the cluster.
	Seeds  []string
	Access nats.Access
	// Shards is how many there are, Regions how many nodes host them at least.
	Shards, Regions int
	// DSN and Schema are where the journal is, in PostgreSQL. Without them it is in memory, and the state of the coordinator
	// in replicated data. DSN is secret.
	DSN    string `json:",omitempty"`
	Schema string `json:",omitempty"`
	// Remember is where a node keeps what of the remembered entities is not in the journal. Without it none are.
	Remember string `json:",omitempty"`
	// StableAfter is that of the downing strategy.
	StableAfter time.Duration `json:",omitempty"`
	// Replicated keeps the state of the coordinator in replicated data all the same.
	Replicated bool `json:",omitempty"`
}

// shardOrder is what a parent orders a process that has a region to do: one thing at a time.
type shardOrder struct {
	Do    string
	Setup *shardSetup `json:",omitempty"` // of shardJoin
	Name  string      `json:",omitempty"` // of the node
	Way   string      `json:",omitempty"`
	// Callers, Count and Length are of whom, of what, and for how long.
	Callers int           `json:",omitempty"`
	Count   int           `json:",omitempty"`
	Length  time.Duration `json:",omitempty"`
	// Rate is how many asks are made in a second.
	Rate int `json:",omitempty"`
	// Part is which of the Count entities this process asks: those whose number divided by Parts has it as its remainder.
	Part, Parts int
	From, To    time.Time `json:",omitzero"`
}

// shardAnswer says what has come of an order.
type shardAnswer struct {
	Node identity.Node `json:",omitzero"`
	// At is when it was so: the wall time, which all processes on a machine share.
	At   time.Time     `json:",omitzero"`
	Ops  int           `json:",omitempty"`
	Took time.Duration `json:",omitempty"`
	// Failed is how many asks had an error, Open how many were not answered yet, First the texts of some errors.
	Failed int      `json:",omitempty"`
	Open   int      `json:",omitempty"`
	First  []string `json:",omitempty"`
	// Lost says how many acknowledged commands are missing.
	Lost  int             `json:",omitempty"`
	Times []time.Duration `json:",omitempty"`
	// Answered is when all shards had answered.
	Answered time.Time   `json:",omitzero"`
	Seen     []seenEvent `json:",omitempty"`
	// Homes is how many shards each node has.
	Homes map[string]int `json:",omitempty"`
}

func (a *shardAnswer) rate() float64 { return float64(a.Ops) / max(1e-9, a.Took.Seconds()) }

// shardCrew are processes that have a region each.
type shardCrew struct{ *crew }

func newShardCrew(command []string) (shardCrew, error) {
	c, err := newCrew(command)
	return shardCrew{c}, err
}

// shard has a process do something, and waits for it.
func (h *hand) shard(o shardOrder) (shardAnswer, error) { return say[shardAnswer](h, o.Do, o) }

// shardEach has all processes do something at a time, each its own.
func shardEach(hands []*hand, order func(i int) shardOrder) ([]shardAnswer, error) {
	return atOnce(hands, (*hand).shard, order)
}

// join starts a process whose node joins those that were started before, waits until it is up, and says when that was.
func (c shardCrew) join(ctx context.Context, name string, setup shardSetup) (time.Time, error) {
	h, err := c.start(ctx, name)
	if err != nil {
		return time.Time{}, err
	}
	setup.Seeds, setup.Access = []string{c.hands[0].name}, c.server.Access()
	a, err := h.shard(shardOrder{Do: shardJoin, Name: name, Setup: &setup})
	return a.At, err
}

// joinAll starts as many, one after the other. All are registered with the coordinator when it returns.
func (c shardCrew) joinAll(ctx context.Context, n int, setup shardSetup) error {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i+1)
	}
	return c.joinNamed(ctx, names, setup)
}

// joinNamed does the same with names, the oldest first.
func (c shardCrew) joinNamed(ctx context.Context, names []string, setup shardSetup) error {
	for _, name := range names {
		if _, err := c.join(ctx, name, setup); err != nil {
			return err
		}
	}
	_, err := shardEach(c.hands, func(int) shardOrder { return shardOrder{Do: shardAwait, Count: len(names)} })
	return err
}

// murder kills a process, and forgets it.
func (c shardCrew) murder(h *hand) error {
	c.hands = slices.DeleteFunc(c.hands, func(o *hand) bool { return o == h })
	err := h.cmd.Process.Kill()
	_ = h.cmd.Wait() // it was killed
	return err
}
