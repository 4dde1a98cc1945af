// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refold-io/refold/sharding/allocation"
)

// ErrImpossible is matched by the errors about events that contradict the events before them.
var ErrImpossible = errors.New("coordinator: impossible event")

// reasonTooMany is the reason for which a region or proxy beyond MaxRegions is invalid.
const reasonTooMany = "too many are registered"

// maxRepairs is the number of repairs that are kept for the log. All repairs are counted.
const maxRepairs = 100

// Fold computes a state from events. It is not safe for concurrent use.
type Fold struct {
	state   State
	copied  []bool // regions whose list of shards is not shared with an earlier state
	repairs []string
	count   int
}

// NewFold returns a Fold that continues from a state.
func NewFold(from State) *Fold {
	from.regions, from.proxies, from.homes, from.pins = slices.Clone(from.regions), slices.Clone(from.proxies), slices.Clone(from.homes), slices.Clone(from.pins)
	return &Fold{state: from, copied: make([]bool, len(from.regions))}
}

// State returns the state after the events so far. The Fold then continues with a copy.
func (f *Fold) State() State {
	s := f.state
	f.state.regions, f.state.proxies, f.state.homes, f.state.pins = slices.Clone(s.regions), slices.Clone(s.proxies), slices.Clone(s.homes), slices.Clone(s.pins)
	f.copied = make([]bool, len(s.regions))
	return s
}

// Apply adds an event. The error matches ErrImpossible if the event contradicts the events before it. In this case the state does not change.
func (f *Fold) Apply(e Event) error {
	if why := f.check(&e); why != "" {
		return fmt.Errorf("%w: %v %v (%d shards): %s", ErrImpossible, e.Kind, e.Node, len(e.Shards), why)
	}
	f.apply(&e)
	return nil
}

// check returns the reason for which an event is invalid, or "".
func (f *Fold) check(e *Event) string {
	_, known := f.state.Region(e.Node)
	count := len(f.state.regions)
	if e.Kind == ProxyRegistered || e.Kind == ProxyTerminated {
		known, count = f.state.HasProxy(e.Node), len(f.state.proxies)
	}
	switch e.Kind {
	case Started:
		if e.Term <= f.state.term {
			return fmt.Sprintf("term %d after term %d", e.Term, f.state.term)
		}
	case RegionRegistered, ProxyRegistered:
		if known {
			return "it is already registered"
		}
		if count >= MaxRegions {
			return reasonTooMany
		}
	case RegionTerminated, ProxyTerminated, HomesAllocated:
		if !known {
			return "it is not registered"
		}
		return f.checkShards(e.Shards, false) // a termination event has no shards
	case HomesDeallocated:
		return f.checkShards(e.Shards, true)
	case ShardsPinned, ShardsReleased:
		return f.checkPins(e)
	default:
		return "unknown kind"
	}
	return ""
}

func (f *Fold) checkShards(shards []Shard, allocated bool) string {
	sorted := slices.Sorted(slices.Values(shards))
	for i, s := range sorted {
		home, found := f.state.Home(s)
		switch {
		case s >= MaxShards:
			return fmt.Sprintf("shard %d is above the maximum", s)
		case i > 0 && sorted[i-1] == s:
			return fmt.Sprintf("shard %d occurs twice", s)
		case found && !allocated:
			return fmt.Sprintf("shard %d is on %v", s, home)
		case !found && allocated:
			return fmt.Sprintf("shard %d has no home", s)
		}
	}
	return ""
}

func (f *Fold) apply(e *Event) {
	switch e.Kind {
	case Started:
		f.state.term, f.state.holder = e.Term, e.Node
	case RegionRegistered:
		i, _ := allocation.Find(f.state.regions, e.Node)
		f.state.regions = slices.Insert(f.state.regions, i, allocation.Region{Node: e.Node})
		f.copied = slices.Insert(f.copied, i, true)
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
		f.copied = slices.Delete(f.copied, i, i+1)
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
	case ShardsPinned:
		for _, s := range e.Shards {
			f.state.pins = withPin(f.state.pins, Pin{s, e.Node.Name})
		}
	case ShardsReleased:
		for _, s := range e.Shards {
			f.state.pins = withoutPin(f.state.pins, s)
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

// renumber adds by to each region number in homes that is greater than from. The regions after this index have moved.
func (f *Fold) renumber(from, by int) {
	for s, nr := range f.state.homes {
		if int(nr) > from {
			f.state.homes[s] = uint16(int(nr) + by) //nolint:gosec // at most MaxRegions
		}
	}
}

// region returns a region with a list of shards that may be changed.
func (f *Fold) region(i int) *allocation.Region {
	r := &f.state.regions[i]
	if !f.copied[i] {
		r.Shards, f.copied[i] = slices.Clone(r.Shards), true
	}
	return r
}

// Repairs returns descriptions of the first repairs, for operators, and the number of all repairs.
func (f *Fold) Repairs() ([]string, int) { return f.repairs, f.count }

func (f *Fold) repaired(format string, args ...any) {
	if f.count++; len(f.repairs) < maxRepairs {
		f.repairs = append(f.repairs, fmt.Sprintf(format, args...))
	}
}

// Replay adds an event of a stored history even if it contradicts the events before it. Two
// coordinators that write one history at the same time can store such events. Replay interprets
// them so that each shard has one home, the last one that was stored. Repairs returns the
// interpretations. The termination of an unknown region does not count as a repair.
func (f *Fold) Replay(e Event) {
	why := f.check(&e)
	if why == "" {
		f.apply(&e)
		return
	}
	if why == reasonTooMany {
		f.repaired("too many regions: %v", e.Node)
		return
	}
	switch e.Kind {
	case Started:
		f.repaired("term %d of %v is not higher", e.Term, e.Node)
	case RegionRegistered, ProxyRegistered:
		f.repaired("%v is registered twice", e.Node)
	case RegionTerminated, ProxyTerminated:
	case ShardsPinned, ShardsReleased:
		f.repaired("%v of %d shards: %s", e.Kind, len(e.Shards), why)
	case HomesAllocated:
		f.replayAllocated(&e)
	case HomesDeallocated:
		for _, s := range e.Shards {
			if _, found := f.state.Home(s); found {
				f.deallocate(s)
			} else {
				f.repaired("shard %d has no home", s)
			}
		}
	}
}

func (f *Fold) replayAllocated(e *Event) {
	if _, found := f.state.Region(e.Node); !found {
		if len(f.state.regions) >= MaxRegions {
			f.repaired("too many regions: %v", e.Node)
			return
		}
		f.repaired("%v is not registered: it is registered from now on, because it may host shards", e.Node)
		f.apply(&Event{Kind: RegionRegistered, Node: e.Node})
	}
	for _, s := range e.Shards {
		home, found := f.state.Home(s)
		switch {
		case s >= MaxShards:
			f.repaired("shard %d of %v does not exist", s, e.Node)
			continue
		case found && home == e.Node:
			f.repaired("shard %d is allocated to %v twice", s, e.Node)
			continue
		case found:
			f.repaired("shard %d of %v is allocated to %v: the later home holds", s, home, e.Node)
			f.deallocate(s)
		}
		f.apply(&Event{Kind: HomesAllocated, Node: e.Node, Shards: []Shard{s}})
	}
}
