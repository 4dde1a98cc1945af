// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
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
