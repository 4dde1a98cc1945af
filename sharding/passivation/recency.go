// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation

import "math"

// policy is a number of entities with an order among them. What is done takes the same
// time for any number.
type policy interface {
	// add takes an entity in, which is not there.
	add(e *entry)
	// touch notes that one was needed again.
	touch(e *entry)
	// victim is who goes first, nil if there is none.
	victim() *entry
	// evict removes the victim. It may count as a sign of how much entities are needed.
	evict(e *entry)
	// remove removes one that ended.
	remove(e *entry)
	// resize tells how many there may be. Whoever calls it evicts the others.
	resize(limit int)
	len() int
}

func newPolicy(r *Replacement) policy {
	switch r.Policy {
	case MostRecent:
		return &mostRecent{}
	case LeastFrequent:
		return newFrequency(r.DynamicAging)
	case LeastRecent:
	}
	return &segments{proportions: r.Proportions, levels: make([]list, r.Levels), limits: make([]int, r.Levels)}
}

// mostRecent gives up the newest.
type mostRecent struct{ all list }

func (m *mostRecent) add(e *entry)    { m.all.push(e) }
func (m *mostRecent) victim() *entry  { return m.all.newest }
func (m *mostRecent) evict(e *entry)  { m.all.remove(e) }
func (m *mostRecent) remove(e *entry) { m.all.remove(e) }
func (m *mostRecent) resize(int)      {}
func (m *mostRecent) len() int        { return m.all.n }

func (m *mostRecent) touch(e *entry) {
	m.all.remove(e)
	m.all.push(e)
}

// segments gives up the oldest of the lowest level. With one level it is plain recency.
type segments struct {
	proportions []float64
	levels      []list
	limits      []int // of the levels but the lowest, which has the rest
	n           int
}

func (s *segments) add(e *entry) {
	e.level = 0
	s.levels[0].push(e)
	s.n++
}

func (s *segments) touch(e *entry) {
	s.levels[e.level].remove(e)
	e.level = min(e.level+1, len(s.levels)-1)
	s.levels[e.level].push(e)
	s.settle(e.level)
}

// settle lets levels that are too full, from one downwards, give their oldest to the one
// below.
func (s *segments) settle(from int) {
	for level := from; level > 0; level-- {
		for s.levels[level].n > s.limits[level] {
			e := s.levels[level].oldest
			s.levels[level].remove(e)
			e.level = level - 1
			s.levels[level-1].push(e)
		}
	}
}

func (s *segments) victim() *entry {
	for i := range s.levels {
		if e := s.levels[i].oldest; e != nil {
			return e
		}
	}
	return nil
}

func (s *segments) evict(e *entry) { s.remove(e) }

func (s *segments) remove(e *entry) {
	s.levels[e.level].remove(e)
	s.n--
}

func (s *segments) resize(limit int) {
	for i := range s.limits {
		s.limits[i] = portion(s.proportions[i], limit)
	}
	s.settle(len(s.levels) - 1)
}

func (s *segments) len() int { return s.n }

// portion is a part of a limit, rounded down. What is a whole number but for the way
// numbers are stored is that number.
func portion(part float64, limit int) int {
	return int(math.Floor(part*float64(limit) + 1e-9))
}
