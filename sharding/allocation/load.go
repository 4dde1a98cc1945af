// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// ShardLoad is the load of a shard. The region that hosts the shard measures it, and the coordinator
// smooths it: Busy and Commands are averages over about half a minute.
type ShardLoad struct {
	// Busy is the time that the entities of the shard spend in their turns, in seconds per second.
	// A turn includes the handlers and excludes the waits for the journal. 0 if it is unknown.
	Busy float64
	// Commands is the number of messages that the entities of the shard handle per second.
	Commands float64
	// Waiting is the number of messages that wait for the shard or in the mailboxes of its entities.
	Waiting int
	// Entities is the number of entities in memory. It stands for the memory of the shard: the size
	// of a state is not known without encoding it.
	Entities int
	// Settled is the time since the last move of the shard. It is very long if the coordinator has
	// not seen one.
	Settled time.Duration
}

// NodeLoad is the load of the process of a node.
type NodeLoad struct {
	// CPU is the time of processors that the process uses, in seconds per second. Cores is the
	// number of processors that it may use.
	CPU   float64
	Cores int
	// Memory is the memory that the process has obtained from the operating system and not
	// returned, in bytes.
	Memory uint64
}

// loads are the shares of shards in the load of their regions.
type loads struct {
	known   map[Shard]float64
	unknown float64
	weight  func(Shard) float64
	even    bool // no load is known: all shards are equal
}

// loadsOf returns the load of the shards: their busy time. The busy time of shards of which only
// the commands are known is derived from the average time of a command. If no busy time is known,
// it is the number of commands.
func loadsOf(v *View, weight func(Shard) float64) loads {
	busy, commands, timed := 0.0, 0.0, 0.0
	shards := slices.Sorted(maps.Keys(v.Load)) // a sum must not depend on the order of the map
	for _, shard := range shards {
		at := v.Load[shard]
		busy += at.Busy
		commands += at.Commands
		if at.Busy > 0 {
			timed += at.Commands
		}
	}
	each := 1.0 // the load of a command
	if busy > 0 && timed > 0 {
		each = busy / timed
	}
	l := loads{known: make(map[Shard]float64, len(v.Load)), weight: weight}
	sum := 0.0
	for _, s := range shards {
		at := v.Load[s]
		load := at.Busy
		if load <= 0 {
			load = at.Commands * each
		}
		l.known[s] = load
		sum += load
	}
	if l.even = sum <= 0; !l.even {
		l.unknown = sum / float64(max(1, len(v.Load)))
	}
	return l
}

// of returns the load of a shard. A shard without a known load has the average load.
func (l *loads) of(s Shard) float64 {
	load, known := l.known[s]
	switch {
	case l.even:
		load = 1
	case !known:
		load = l.unknown
	}
	if l.weight == nil {
		return load
	}
	return load * positive(l.weight(s))
}

// positive returns 1 for a hint that is not a positive number.
func positive(hint float64) float64 {
	if hint > 0 && !math.IsInf(hint, 1) {
		return hint
	}
	return 1
}

// on returns the load of a region.
func (l *loads) on(r *Region) (sum float64) {
	for _, s := range r.Shards {
		sum += l.of(s)
	}
	return sum
}

func capacityOf(capacity func(identity.Node) float64, n identity.Node) float64 {
	if capacity == nil {
		return 1
	}
	return positive(capacity(n))
}
