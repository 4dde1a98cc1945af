// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// ErrImpossible is matched by the errors about events that can't follow on what was
// before.
var ErrImpossible = errors.New("coordinator: impossible event")

// tooMany is said of a region or proxy beyond MaxRegions.
const tooMany = "there are too many"

// maxRepairs is how many repairs are kept for the log. All are counted.
const maxRepairs = 100

// Fold makes a state out of events. It is not safe for concurrent use.
type Fold struct {
	state   State
	own     []bool // regions whose list of shards is not that of an earlier state
	repairs []Repair
	count   int
}

// NewFold returns a fold that goes on from a state.
func NewFold(from State) *Fold {
	from.regions, from.proxies, from.homes = slices.Clone(from.regions), slices.Clone(from.proxies), slices.Clone(from.homes)
	return &Fold{state: from, own: make([]bool, len(from.regions))}
}

// State returns the state after the events so far, and begins a new one.
func (f *Fold) State() State {
	s := f.state
	f.state.regions, f.state.proxies, f.state.homes = slices.Clone(s.regions), slices.Clone(s.proxies), slices.Clone(s.homes)
	f.own = make([]bool, len(s.regions))
	return s
}

// Apply adds an event. The error matches ErrImpossible if it doesn't follow on what was before;
// then nothing has changed.
func (f *Fold) Apply(e Event) error {
	if why := f.check(&e); why != "" {
		return fmt.Errorf("%w: %v %v (%d shards): %s", ErrImpossible, e.Kind, e.Node, len(e.Shards), why)
	}
	f.apply(&e)
	return nil
}

// check says why an event can't be.
func (f *Fold) check(e *Event) string {
	_, region := f.state.Region(e.Node)
	switch e.Kind {
	case Started:
		if e.Term <= f.state.term {
			return fmt.Sprintf("term %d after term %d", e.Term, f.state.term)
		}
	case RegionRegistered:
		if region {
			return "it is registered"
		}
		if len(f.state.regions) >= MaxRegions {
			return tooMany
		}
	case ProxyRegistered:
		if f.state.HasProxy(e.Node) {
			return "it is registered"
		}
		if len(f.state.proxies) >= MaxRegions {
			return tooMany
		}
	case RegionTerminated:
		if !region {
			return "it is not registered"
		}
	case ProxyTerminated:
		if !f.state.HasProxy(e.Node) {
			return "it is not registered"
		}
	case HomesAllocated:
		if !region {
			return "it is not registered"
		}
		return f.checkShards(e.Shards, false)
	case HomesDeallocated:
		return f.checkShards(e.Shards, true)
	default:
		return "it is not known"
	}
	return ""
}

func (f *Fold) checkShards(shards []Shard, allocated bool) string {
	sorted := slices.Sorted(slices.Values(shards))
	for i, s := range sorted {
		home, found := f.state.Home(s)
		switch {
		case s >= MaxShards:
			return fmt.Sprintf("shard %d is beyond the last one", s)
		case i > 0 && sorted[i-1] == s:
			return fmt.Sprintf("shard %d is named twice", s)
		case found && !allocated:
			return fmt.Sprintf("shard %d is on %v", s, home)
		case !found && allocated:
			return fmt.Sprintf("shard %d has no home", s)
		}
	}
	return ""
}

// apply adds an event that was checked.
func (f *Fold) apply(e *Event) {
	switch e.Kind {
	case Started:
		f.state.term, f.state.holder = e.Term, e.Node
	case RegionRegistered:
		i, _ := allocation.Find(f.state.regions, e.Node)
		f.state.regions = slices.Insert(f.state.regions, i, allocation.Region{Node: e.Node})
		f.own = slices.Insert(f.own, i, true)
		f.renumber(i, 1)
	case ProxyRegistered:
		f.state.proxies = with(f.state.proxies, e.Node)
	case RegionTerminated:
		i, _ := allocation.Find(f.state.regions, e.Node)
		for _, s := range f.state.regions[i].Shards {
			f.state.homes[s] = 0
			f.state.shards--
		}
		f.state.regions = slices.Delete(f.state.regions, i, i+1)
		f.own = slices.Delete(f.own, i, i+1)
		f.renumber(i, -1)
	case ProxyTerminated:
		f.state.proxies = without(f.state.proxies, e.Node)
	case HomesAllocated:
		i, _ := allocation.Find(f.state.regions, e.Node)
		r := f.region(i)
		r.Shards = append(r.Shards, e.Shards...)
		for _, s := range e.Shards {
			if missing := int(s) + 1 - len(f.state.homes); missing > 0 {
				f.state.homes = append(f.state.homes, make([]uint16, missing)...)
			}
			f.state.homes[s] = uint16(i + 1) //nolint:gosec // at most MaxRegions
		}
		f.state.shards += len(e.Shards)
	case HomesDeallocated:
		for _, s := range e.Shards {
			f.deallocate(s)
		}
	}
}

func (f *Fold) deallocate(s Shard) {
	r := f.region(int(f.state.homes[s]) - 1)
	i := slices.Index(r.Shards, s)
	r.Shards = slices.Delete(r.Shards, i, i+1)
	f.state.homes[s] = 0
	f.state.shards--
}

// renumber takes note that the regions from one on have moved.
func (f *Fold) renumber(from, by int) {
	for s, nr := range f.state.homes {
		if int(nr) > from {
			f.state.homes[s] = uint16(int(nr) + by) //nolint:gosec // at most MaxRegions
		}
	}
}

// region returns a region whose list of shards may be changed.
func (f *Fold) region(i int) *allocation.Region {
	r := &f.state.regions[i]
	if !f.own[i] {
		r.Shards, f.own[i] = slices.Clone(r.Shards), true
	}
	return r
}

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
