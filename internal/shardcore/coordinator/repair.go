// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"

	"github.com/refold-io/refold/identity"
)

// RepairKind says what was wrong with a stored history.
type RepairKind uint8

const (
	// TermNotHigher says that a term began that is not higher than the one before. The
	// higher one holds.
	TermNotHigher RepairKind = 1 + iota
	// RegisteredTwice says that a region or proxy was registered that already was.
	RegisteredTwice
	// RegionUnknown says that shards were allocated to a region that was not registered. It is
	// from then on: it may host them.
	RegionUnknown
	// HomeMoved says that a shard was allocated that had another home. The later one
	// holds.
	HomeMoved
	// HomeTwice says that a shard was allocated where it was.
	HomeTwice
	// HomeUnknown says that a shard was deallocated that had no home.
	HomeUnknown
	// TooManyRegions says that a region or proxy was registered, or used, that is one more than there may be. It
	// is left out, with its shards.
	TooManyRegions
	// ShardUnknown says that a shard has a number beyond the highest possible. It is left
	// out.
	ShardUnknown
)

func (k RepairKind) String() string {
	switch k {
	case TermNotHigher:
		return "term not higher"
	case RegisteredTwice:
		return "registered twice"
	case RegionUnknown:
		return "region unknown"
	case HomeMoved:
		return "home moved"
	case HomeTwice:
		return "home allocated twice"
	case HomeUnknown:
		return "home unknown"
	case TooManyRegions:
		return "too many regions"
	case ShardUnknown:
		return "shard unknown"
	}
	return fmt.Sprintf("repair(%d)", uint8(k))
}

// Repair tells an operator what was wrong with a history, and where.
type Repair struct {
	Kind  RepairKind
	Node  identity.Node // of the event
	Was   identity.Node // the home before, of HomeMoved
	Shard Shard         // of those about homes
	Term  uint64        // of TermNotHigher
}

// Repairs returns the first repairs, and how many there were.
func (f *Fold) Repairs() ([]Repair, int) { return f.repairs, f.count }

func (f *Fold) repaired(r Repair) {
	if f.count++; len(f.repairs) < maxRepairs {
		f.repairs = append(f.repairs, r)
	}
}

// Replay adds an event of a stored history, whatever was before. Two coordinators that wrote
// one history, each ignorant of the other, leave events that can't follow on each other: those
// are understood so that each shard has one home, which is the last one that was stored, and what was done
// about it is told by Repairs. That something unknown is terminated is no repair.
func (f *Fold) Replay(e Event) {
	why := f.check(&e)
	if why == "" {
		f.apply(&e)
		return
	}
	if why == tooMany {
		f.repaired(Repair{Kind: TooManyRegions, Node: e.Node})
		return
	}
	switch e.Kind {
	case Started:
		f.repaired(Repair{Kind: TermNotHigher, Node: e.Node, Term: e.Term})
	case RegionRegistered, ProxyRegistered:
		f.repaired(Repair{Kind: RegisteredTwice, Node: e.Node})
	case RegionTerminated, ProxyTerminated:
	case HomesAllocated:
		f.replayAllocated(&e)
	case HomesDeallocated:
		for _, s := range e.Shards {
			if _, found := f.state.Home(s); found {
				f.deallocate(s)
			} else {
				f.repaired(Repair{Kind: HomeUnknown, Shard: s})
			}
		}
	}
}

func (f *Fold) replayAllocated(e *Event) {
	if _, found := f.state.Region(e.Node); !found {
		if len(f.state.regions) >= MaxRegions {
			f.repaired(Repair{Kind: TooManyRegions, Node: e.Node})
			return
		}
		f.repaired(Repair{Kind: RegionUnknown, Node: e.Node})
		f.apply(&Event{Kind: RegionRegistered, Node: e.Node})
	}
	for _, s := range e.Shards {
		home, found := f.state.Home(s)
		switch {
		case s >= MaxShards:
			f.repaired(Repair{Kind: ShardUnknown, Node: e.Node, Shard: s})
			continue
		case found && home == e.Node:
			f.repaired(Repair{Kind: HomeTwice, Node: e.Node, Shard: s})
			continue
		case found:
			f.repaired(Repair{Kind: HomeMoved, Node: e.Node, Was: home, Shard: s})
			f.deallocate(s)
		}
		f.apply(&Event{Kind: HomesAllocated, Node: e.Node, Shards: []Shard{s}})
	}
}
