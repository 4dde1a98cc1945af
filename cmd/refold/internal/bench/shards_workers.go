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

// The orders of the parent to a process with a region.
const (
	shardJoin    = "join"    // the cluster, and start the region
	shardAwait   = "await"   // until there are Count regions
	shardWhere   = "where"   // ask the entities up to Count for their nodes
	shardEcho    = "echo"    // let callers ask entities for a time, as Way selects
	shardFill    = "fill"    // start the entities of its part
	shardLoad    = "load"    // start a load at a fixed rate
	shardHalt    = "halt"    // end the load and wait for the replies
	shardTimes   = "times"   // durations of asks that were due between From and To
	shardCheck   = "check"   // that no acknowledged command is lost
	shardHomes   = "homes"   // the number of shards per node
	shardProbe   = "probe"   // ask an entity of each shard until it replies
	shardSeen    = "seen"    // the node's observations about others
	shardRuns    = "runs"    // the number of running entities
	shardPrepare = "prepare" // for the end of all nodes
	shardLeave   = "leave"   // the cluster
)

// The targets of the callers of shardEcho.
const (
	wayHere   = "here"   // entities on the same node, through the region
	wayThere  = "there"  // entities on other nodes, through the region
	wayHost   = "host"   // entities of a local host
	wayRaw    = "raw"    // a subscription of the plain NATS client in the serving process
	wayAnswer = "answer" // serves it
)

// shardSetup is the configuration of a node.
type shardSetup struct {
	// Seeds and Access are those of the cluster.
	Seeds  []string
	Access nats.Access
	// Shards is the number of shards, Regions the minimum number of hosting nodes.
	Shards, Regions int
	// DSN and Schema locate the journal in PostgreSQL. Without them the journal is in memory and
	// the coordinator's state in replicated data. DSN is secret.
	DSN    string `json:",omitempty"`
	Schema string `json:",omitempty"`
	// Remember is the directory for remembered entities that the journal does not hold. Without it
	// no entity is remembered.
	Remember string `json:",omitempty"`
	// StableAfter is that of the downing strategy.
	StableAfter time.Duration `json:",omitempty"`
	// Replicated keeps the coordinator's state in replicated data even with a journal.
	Replicated bool `json:",omitempty"`
}

// shardOrder is an order to a process with a region. A process executes one order at a time.
type shardOrder struct {
	Do    string
	Setup *shardSetup `json:",omitempty"` // of shardJoin
	Name  string      `json:",omitempty"` // of the node
	Way   string      `json:",omitempty"`
	// Callers, Count and Length are the numbers of callers and entities, and the duration.
	Callers int           `json:",omitempty"`
	Count   int           `json:",omitempty"`
	Length  time.Duration `json:",omitempty"`
	// Rate is the number of asks per second.
	Rate int `json:",omitempty"`
	// Part selects the entities of this process: those whose number modulo Parts is Part.
	Part, Parts int
	From, To    time.Time `json:",omitzero"`
}

// shardAnswer is the result of an order.
type shardAnswer struct {
	Node identity.Node `json:",omitzero"`
	// At is the time of the result: the wall time, which all processes of a machine share.
	At   time.Time     `json:",omitzero"`
	Ops  int           `json:",omitempty"`
	Took time.Duration `json:",omitempty"`
	// Failed is the number of failed asks, Open that of open asks, First the texts of some errors.
	Failed int      `json:",omitempty"`
	Open   int      `json:",omitempty"`
	First  []string `json:",omitempty"`
	// Lost describes missing acknowledged commands.
	Lost  int             `json:",omitempty"`
	Times []time.Duration `json:",omitempty"`
	// Answered is the time at which all shards had replied.
	Answered time.Time   `json:",omitzero"`
	Seen     []seenEvent `json:",omitempty"`
	// Homes is the number of shards per node.
	Homes map[string]int `json:",omitempty"`
}

func (a *shardAnswer) rate() float64 { return float64(a.Ops) / max(1e-9, a.Took.Seconds()) }

// shardCrew is a set of processes with a region each.
type shardCrew struct{ *crew }

func newShardCrew(command []string) (shardCrew, error) {
	c, err := newCrew(command)
	return shardCrew{c}, err
}

// shard sends an order to a process and waits for the result.
func (h *hand) shard(o shardOrder) (shardAnswer, error) { return say[shardAnswer](h, o.Do, o) }

// shardEach sends each process its own order at once.
func shardEach(hands []*hand, order func(i int) shardOrder) ([]shardAnswer, error) {
	return atOnce(hands, (*hand).shard, order)
}

// join starts a process whose node joins the earlier ones, waits until it is Up, and returns that
// time.
func (c shardCrew) join(ctx context.Context, name string, setup shardSetup) (time.Time, error) {
	h, err := c.start(ctx, name)
	if err != nil {
		return time.Time{}, err
	}
	setup.Seeds, setup.Access = []string{c.hands[0].name}, c.server.Access()
	a, err := h.shard(shardOrder{Do: shardJoin, Name: name, Setup: &setup})
	return a.At, err
}

// joinAll starts n processes, one after the other, and waits until all are registered with the
// coordinator.
func (c shardCrew) joinAll(ctx context.Context, n int, setup shardSetup) error {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i+1)
	}
	return c.joinNamed(ctx, names, setup)
}

// joinNamed is joinAll with names, the oldest first.
func (c shardCrew) joinNamed(ctx context.Context, names []string, setup shardSetup) error {
	for _, name := range names {
		if _, err := c.join(ctx, name, setup); err != nil {
			return err
		}
	}
	_, err := shardEach(c.hands, func(int) shardOrder { return shardOrder{Do: shardAwait, Count: len(names)} })
	return err
}

// murder kills a process and removes it from the crew.
func (c shardCrew) murder(h *hand) error {
	c.hands = slices.DeleteFunc(c.hands, func(o *hand) bool { return o == h })
	err := h.cmd.Process.Kill()
	_ = h.cmd.Wait() // it was killed
	return err
}
