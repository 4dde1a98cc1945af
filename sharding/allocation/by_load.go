// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
)

// ByLoad evens out the load of the nodes with few moves. The load of a shard is its busy time, or
// its rate of commands if no busy time is known, see ShardLoad. The load of a node is that of its
// shards, divided by the capacity of the node.
//
// A new shard goes to the least loaded node. Until its load is known, it counts as an average one.
//
// Shards move when the busiest node exceeds the mean by more than Imbalance. Then as few shards move
// as bring it to a third of that: each move is the one that lowers the load of the busiest node
// most. Three rules prevent that shards move back and forth as loads vary: the load is smoothed, a
// round of moves ends far below the limit that starts the next one, and a shard that has moved stays
// for the time Rest. Nothing moves while a region has not reported its load twice, while the
// busiest node is busy for less than a twentieth of a processor, or at a bad time: see the
// documentation of the package.
type ByLoad struct {
	// Imbalance is the fraction by which the busiest node may exceed the mean load. Defaults to
	// 0.12.
	Imbalance float64
	// MaxMoves is the maximum number of shards that move in a round. The next round begins after
	// all moves have ended. Defaults to 20.
	MaxMoves int
	// Rest is the time that a shard stays after a move. Defaults to 5 minutes.
	Rest time.Duration
	// Weight returns a factor for the load of a shard, for example 2 for shards whose growth is
	// expected. Defaults to 1 for all shards; so do results that are not positive numbers. It must
	// be deterministic and equal on all nodes.
	Weight func(Shard) float64
	// Capacity returns the share of the load that a node can take in relation to other nodes, for
	// example its number of processors. Defaults to 1 for all nodes, as in Weight.
	Capacity func(identity.Node) float64
}

// idleBusy is the busy time, in seconds per second, below which the busiest node needs no help.
const idleBusy = 0.05

// Validate returns an error that matches ErrInvalid and names each invalid field.
func (s ByLoad) Validate() error {
	var errs fielderror.Errors
	if !(s.Imbalance >= 0 && s.Imbalance <= 10) { // this form of the condition also rejects NaN
		errs.Addf("ByLoad.Imbalance", "is %v, it must be from 0 to 10", s.Imbalance)
	}
	fielderror.NotNegative(&errs, "ByLoad.MaxMoves", s.MaxMoves)
	fielderror.NotNegative(&errs, "ByLoad.Rest", s.Rest)
	return errs.Err(ErrInvalid)
}

// ReadsLoad returns true: regions report their load, see View.Load.
func (ByLoad) ReadsLoad() bool { return true }

// Allocate returns the least loaded region of the best ones.
func (s ByLoad) Allocate(v View, request Request) (identity.Node, bool) {
	l := loadsOf(&v, s.Weight)
	own := l.of(request.Shard)
	var best candidate
	least := math.Inf(1)
	for _, c := range v.candidates() {
		if c.class == unfit {
			continue
		}
		load := (l.on(c.region) + own) / capacityOf(s.Capacity, c.region.Node)
		if best.region == nil || cmp.Or(
			cmp.Compare(c.class, best.class),
			best.member.Version.Compare(c.member.Version),
			cmp.Compare(load, least),
			cmp.Compare(len(c.region.Shards), len(best.region.Shards)),
		) < 0 {
			best, least = c, load
		}
	}
	if best.region == nil {
		return identity.Node{}, false
	}
	return best.region.Node, true
}

// loadedRegion is a region in the plan of a round.
type loadedRegion struct {
	region   *Region
	load     float64
	capacity float64
	stuck    bool // no move of a shard lowers its load below that of the receiver
}

func (r *loadedRegion) level() float64 { return r.load / r.capacity }

// Rebalance returns the shards that should move.
func (s ByLoad) Rebalance(v View) []Shard {
	if len(v.Moving) > 0 || !v.GoodTime() {
		return nil
	}
	l := loadsOf(&v, s.Weight)
	regions, mean, ok := s.regions(&v, &l)
	imbalance := cmp.Or(s.Imbalance, 0.12)
	if !ok || regions[busiest(regions)].level() <= mean*(1+imbalance) {
		return nil
	}
	var chosen []Shard
	for most := cmp.Or(s.MaxMoves, 20); len(chosen) < most; {
		from, to := busiest(regions), idlest(regions)
		if from < 0 || regions[from].level() <= mean*(1+imbalance/3) {
			break
		}
		shard, found := s.best(&v, &l, &regions[from], &regions[to], chosen)
		if !found {
			regions[from].stuck = true
			continue
		}
		chosen = append(chosen, shard)
		regions[from].load -= l.of(shard)
		regions[to].load += l.of(shard)
	}
	return chosen
}

// regions returns the regions that take part in a round, and the mean load. It returns false if the
// load of a region is unknown, or if the nodes are idle.
func (s ByLoad) regions(v *View, l *loads) (regions []loadedRegion, mean float64, ok bool) {
	sum, capacity, busy := 0.0, 0.0, 0.0
	timed := false
	for _, c := range v.candidates() {
		if c.class != fit {
			continue
		}
		if _, known := v.Nodes[c.region.Node]; !known {
			return nil, 0, false
		}
		at := loadedRegion{region: c.region, load: l.on(c.region), capacity: capacityOf(s.Capacity, c.region.Node)}
		regions = append(regions, at)
		sum, capacity = sum+at.load, capacity+at.capacity
		own := 0.0
		for _, shard := range c.region.Shards {
			own += v.Load[shard].Busy
		}
		busy, timed = max(busy, own), timed || own > 0
	}
	if len(regions) < 2 || l.even || timed && busy < idleBusy {
		return nil, 0, false
	}
	return regions, sum / capacity, true
}

// busiest returns the region with the highest level that is not stuck, the first one of several, or
// -1.
func busiest(regions []loadedRegion) int {
	found := -1
	for i := range regions {
		if !regions[i].stuck && (found < 0 || regions[i].level() > regions[found].level()) {
			found = i
		}
	}
	return found
}

// idlest returns the region with the lowest level, the first one of several.
func idlest(regions []loadedRegion) int {
	found := 0
	for i := range regions {
		if regions[i].level() < regions[found].level() {
			found = i
		}
	}
	return found
}

// best returns the shard whose move lowers the higher level of two regions most, and of several the
// one with the least load. The move must lower it by at least half of the load of the shard: if the
// receiver would become nearly as busy, the shard would soon move again.
func (s ByLoad) best(v *View, l *loads, from, to *loadedRegion, chosen []Shard) (shard Shard, found bool) {
	peak, least := 0.0, from.level()/1000 // a move with less effect is not worth the hand-off
	rest := cmp.Or(s.Rest, 5*time.Minute)
	for _, candidate := range from.region.Shards {
		load := l.of(candidate)
		if load < least*from.capacity || v.pinned(candidate) || slices.Contains(chosen, candidate) || rests(v, candidate, rest) {
			continue
		}
		after := max((from.load-load)/from.capacity, (to.load+load)/to.capacity)
		switch gain := from.level() - after; {
		case gain < load/from.capacity/2:
		case !found, after < peak-least, after < peak+least && load < l.of(shard):
			shard, found, peak = candidate, true, after
		}
	}
	return shard, found
}

// rests reports whether a shard has moved a short time ago.
func rests(v *View, shard Shard, rest time.Duration) bool {
	at, known := v.Load[shard]
	return known && at.Settled < rest
}
