// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// ErrInvalid is matched by the errors about settings that can't be.
var ErrInvalid = errors.New("passivation: invalid")

// Policy names a way to choose who goes.
type Policy string

// The policies.
const (
	// LeastRecent gives up whom nobody needed for longest.
	LeastRecent Policy = "least-recent"
	// MostRecent gives up who was needed last before the newcomer: for loads that go around in
	// circles.
	MostRecent Policy = "most-recent"
	// LeastFrequent gives up who was needed least often; of those that are equal, who has been for longest.
	LeastFrequent Policy = "least-frequent"
)

// Filter names a way to decide who is let in.
type Filter string

const (
	// NoFilter lets everybody in.
	NoFilter Filter = ""
	// FrequencySketch lets in who is used more often than whom it would replace, by an estimate.
	FrequencySketch Filter = "frequency-sketch"
)

// maxLevels bounds the levels of segmented recency.
const maxLevels = 16

// Replacement is a policy with its parameters.
type Replacement struct {
	// Policy chooses who goes. Defaults to LeastRecent; of a window to none: there is no
	// window.
	Policy Policy
	// Levels splits LeastRecent into segments. A newcomer is in the lowest one, and each further access
	// promotes it. Who is the least recent of a segment that overflows goes to the one below; entities are
	// only given up from the lowest. Defaults to 1: no segments. At most 16.
	Levels int
	// Proportions are the parts of the levels in the limit, the lowest first, each above 0 and 1 together.
	// Defaults to equal ones. If they are set, Levels may be left out.
	Proportions []float64
	// DynamicAging lets LeastFrequent forget: newcomers and those that are needed again start from the
	// priority of the last one that was given up. Accesses are counted up to 4,095 then.
	DynamicAging bool
}

// Window is where newcomers are first. It takes a part of the limit.
type Window struct {
	// Replacement chooses who leaves the window. Without a policy there is none.
	Replacement Replacement
	// Proportion is its part of the limit at first, rounded down. Defaults to 0.01.
	Proportion float64
	// Min and Max bound the part. Default to 0.01 and 1.
	Min, Max float64
	// Climb moves the border between the window and the main area.
	Climb Climb
}

// Climb moves the border of the window in one direction as long as more accesses find
// their entity active, and turns around when it gets worse.
type Climb struct {
	// Enabled switches it on.
	Enabled bool
	// Multiplier times the limit is the number of accesses between two moves. Defaults to 10.
	Multiplier float64
	// Step is how far the border is moved at first, as a part of the limit. Defaults to 0.0625.
	Step float64
	// Restart is the change of the rate that lets the steps start from Step again. Defaults to
	// 0.05.
	Restart float64
	// Decay is the factor between two steps otherwise. Defaults to 0.98.
	Decay float64
}

// Settings say when entities are stopped. The zero value is after two idle minutes.
type Settings struct {
	// Disabled stops none.
	Disabled bool
	// IdleTimeout stops entities that got no message for longer. Defaults to 120 seconds if there is no
	// Limit, otherwise to none. Negative is none.
	IdleTimeout time.Duration
	// IdleInterval is how often that is checked. Defaults to half of IdleTimeout.
	IdleInterval time.Duration
	// Limit is how many entities a region may have. Its shards share it, see PerShard. Defaults to 0:
	// any number.
	Limit int
	// Replacement chooses who goes when there are more.
	Replacement Replacement
	// Window is where newcomers are first. Defaults to none.
	Window Window
	// Filter decides who may come into the main area when that is full. Defaults to NoFilter.
	Filter Filter
}

// Composite returns settings with a limit of 100,000 entities, a window whose size adapts
// itself, a filter by frequency, and segmented recency.
func Composite() Settings {
	return Settings{
		Limit:       100_000,
		Replacement: Replacement{Policy: LeastRecent, Proportions: []float64{0.2, 0.8}},
		Window:      Window{Replacement: Replacement{Policy: LeastRecent}, Climb: Climb{Enabled: true}},
		Filter:      FrequencySketch,
	}
}

// PerShard is how many entities each shard may have. There is at least one shard.
func PerShard(limit, shards int) int { return limit / max(1, shards) }

// WithDefaults returns the settings as they are used, or an error that matches
// ErrInvalid and names each field that is wrong.
func (s Settings) WithDefaults() (Settings, error) {
	if err := s.validate(); err != nil {
		return Settings{}, err
	}
	if s.Disabled {
		return Settings{Disabled: true, IdleTimeout: -1}, nil
	}
	if s.IdleTimeout == 0 && s.Limit > 0 {
		s.IdleTimeout = -1
	}
	s.IdleTimeout = max(-1, cmp.Or(s.IdleTimeout, 120*time.Second))
	s.IdleInterval = min(cmp.Or(s.IdleInterval, max(1, s.IdleTimeout/2)), Never/2) // which can be added to the time
	s.Replacement.Policy = cmp.Or(s.Replacement.Policy, LeastRecent)
	s.Replacement.defaults()
	s.Window.Replacement.defaults()
	w := &s.Window
	w.Proportion, w.Min, w.Max = cmp.Or(w.Proportion, 0.01), cmp.Or(w.Min, 0.01), cmp.Or(w.Max, 1)
	w.Proportion = min(max(w.Proportion, w.Min), w.Max)
	c := &w.Climb
	c.Multiplier, c.Step, c.Restart, c.Decay = cmp.Or(c.Multiplier, 10), cmp.Or(c.Step, 0.0625), cmp.Or(c.Restart, 0.05), cmp.Or(c.Decay, 0.98)
	return s, nil
}

func (r *Replacement) defaults() {
	if n := len(r.Proportions); n > 0 {
		r.Levels, r.Proportions = n, slices.Clone(r.Proportions)
		return
	}
	r.Levels = max(1, r.Levels)
	r.Proportions = slices.Repeat([]float64{1 / float64(r.Levels)}, r.Levels)
}

func (s Settings) validate() error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: Settings."+format, append([]any{ErrInvalid}, args...)...))
	}
	part := func(field string, v float64) {
		if !(v >= 0 && v <= 1) { // as it is, NaN is wrong too
			fail("%s is %v, it must be from 0 to 1", field, v)
		}
	}
	if s.IdleInterval < 0 {
		fail("IdleInterval is %v, less than 0", s.IdleInterval)
	}
	if s.Limit < 0 {
		fail("Limit is %d, less than 0", s.Limit)
	}
	if s.Filter != NoFilter && s.Filter != FrequencySketch {
		fail("Filter is %.40q, there is %q and %q", s.Filter, NoFilter, FrequencySketch)
	}
	s.Replacement.validate("Replacement", fail)
	s.Window.Replacement.validate("Window.Replacement", fail)
	part("Window.Proportion", s.Window.Proportion)
	part("Window.Min", s.Window.Min)
	part("Window.Max", s.Window.Max)
	if cmp.Or(s.Window.Min, 0.01) > cmp.Or(s.Window.Max, 1) {
		fail("Window.Min is %v, more than Max", s.Window.Min)
	}
	if c := s.Window.Climb; !(c.Multiplier >= 0 && c.Multiplier <= 1e6) {
		fail("Window.Climb.Multiplier is %v, it must be from 0 to 1,000,000", c.Multiplier)
	}
	part("Window.Climb.Step", s.Window.Climb.Step)
	part("Window.Climb.Restart", s.Window.Climb.Restart)
	part("Window.Climb.Decay", s.Window.Climb.Decay)
	return errors.Join(errs...)
}

func (r *Replacement) validate(where string, fail func(format string, args ...any)) {
	switch r.Policy {
	case "", LeastRecent, MostRecent, LeastFrequent:
	default:
		fail(where+".Policy is %.40q, there is %q, %q and %q", r.Policy, LeastRecent, MostRecent, LeastFrequent)
	}
	sum := 0.0
	for _, p := range r.Proportions {
		if !(p > 0) {
			fail(where+".Proportions has %v, each must be above 0", p)
		}
		sum += p
	}
	switch n := len(r.Proportions); {
	case n > 0 && math.Abs(sum-1) > 1e-9:
		fail(where+".Proportions are %v together, it must be 1", sum)
	case n > 0 && r.Levels != 0 && r.Levels != n:
		fail(where+".Levels is %d, there are %d Proportions", r.Levels, n)
	case r.Levels < 0 || max(n, r.Levels) > maxLevels:
		fail(where+".Levels is %d, it must be from 0 to %d", cmp.Or(r.Levels, n), maxLevels)
	case max(n, r.Levels) > 1 && r.Policy != LeastRecent && r.Policy != "":
		fail(where+".Levels is of no use with the policy %q", r.Policy)
	}
	if r.DynamicAging && r.Policy != LeastFrequent {
		fail(where+".DynamicAging is of no use with the policy %q", cmp.Or(r.Policy, LeastRecent))
	}
}
