// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"errors"
	"fmt"
	"slices"

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
