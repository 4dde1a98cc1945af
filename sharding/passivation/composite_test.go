// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/refold-io/refold/sharding/passivation"
)

func TestWindow(t *testing.T) {
	t.Parallel()
	recent := passivation.Replacement{Policy: passivation.LeastRecent}
	half := passivation.Settings{Limit: 1, Window: passivation.Window{Replacement: recent, Proportion: 0.5}}
	filtered := half
	filtered.Filter = passivation.FrequencySketch
	direct := passivation.Settings{Limit: 1, Filter: passivation.FrequencySketch}
	for what, test := range map[string]struct {
		settings     passivation.Settings
		limit        int
		script, want string
	}{
		// a and b go into the main area, and are replaced there.
		"without a filter":           {half, 4, "abcdef", "abcde(a)f(b)"},
		"the window is recency":      {half, 4, "abcdcef", "abcdce(a)f(b)"},
		"main is recency too":        {half, 4, "abcdaef", "abcdae(b)f(a)"},
		"a filter keeps equals out":  {filtered, 4, "abcdef", "abcde(c)f(d)"},
		"and lets frequent ones in":  {filtered, 4, "abcdccedf", "abcdcce(d)d(a)f(e)"},
		"room is not filtered":       {filtered, 4, "abcd-aef", "abcd-aef(d)"},
		"no window, newcomers ask":   {direct, 2, "abc", "abc(c)"},
		"and again, until they may":  {direct, 2, "abccc", "abc(c)c(a)c"},
		"a limit of 1 has no window": {half, 1, "abab", "ab(a)a(b)b(a)"},
		"a limit of 0":               {filtered, 0, "aab", "a(a)a(a)b(b)"},
		"a smaller limit":            {half, 4, "abcd2", "abcd2(ab)"},
		// The main area gives up a and b for c and d, since there is no memory of before.
		"a larger limit": {half, 2, "abcd4efgh", "abc(a)d(b)4efg(c)h(d)"},
	} {
		if got := play(entities(t, test.settings, test.limit), test.script); got != test.want {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
	}
}

// Who was used often is forgotten at last, and a new limit forgets at once.
func TestSketchForgets(t *testing.T) {
	t.Parallel()
	s := passivation.Settings{Limit: 1, Filter: passivation.FrequencySketch}
	e := entities(t, s, 2)
	play(e, "aaaaaabbbbbb")
	if got := play(e, "cccc"); got != "c(c)c(c)c(c)c(c)" {
		t.Errorf("a newcomer: %s", got)
	}
	// The 20th increment halves all: a and b have 3, and c has 2.
	if got := play(e, "ddddccc"); got != "d(d)d(d)d(d)d(d)c(c)c(a)c" {
		t.Errorf("after half of it is forgotten: %s", got)
	}
	e = entities(t, s, 2)
	play(e, "aaaaaabbbbbb32")
	if got := play(e, "c"); got != "c(a)" {
		t.Errorf("only c has been used since then: %s", got)
	}
}

// The window shrinks first. It goes on as long as it doesn't get worse, and turns around when it
// does.
func TestWindowClimbs(t *testing.T) {
	t.Parallel()
	s := passivation.Settings{Limit: 1, Window: passivation.Window{
		Replacement: passivation.Replacement{Policy: passivation.LeastRecent}, Proportion: 0.5, Min: 0.1, Max: 0.7,
		Climb: passivation.Climb{Enabled: true, Multiplier: 1, Step: 0.1, Restart: 0.3, Decay: 0.5},
	}}
	const limit = 100
	e := entities(t, s, limit)
	next := 0
	// period makes a number of accesses to one entity that is active, and the others to new ones.
	period := func(active int) int {
		for range limit - active {
			next++
			e.Touch(0, fmt.Sprint(next))
		}
		for range active {
			e.Touch(0, fmt.Sprint(next))
		}
		return e.WindowLimit()
	}
	if e.WindowLimit() != 50 {
		t.Fatalf("the window begins with %d", e.WindowLimit())
	}
	for i, p := range []struct {
		active, want int
		why          string
	}{
		{0, 40, "no worse than nothing: it shrinks by the first step"},
		{10, 35, "better: it shrinks on, by half of that"},
		{10, 32, "as good: the same, by a quarter"},
		{9, 33, "worse: it grows, by an eighth"},
		{50, 34, "much better: it grows on"},
		{51, 44, "and the steps start from the first one"},
		{90, 49, "much better again"},
		{10, 39, "much worse: back, by the first step"},
		{50, 29, "much better: back on"},
		{90, 19, "and on"},
		{50, 29, "much worse: it grows"},
		{90, 39, "much better"},
		{91, 49, "on"},
		{92, 54, "on"},
		{93, 56, "on"},
		{0, 55, "much worse: it shrinks"},
		{0, 45, "no worse"},
		{90, 40, "much better"},
		{91, 30, "and on"},
	} {
		before := e.Len()
		if got := period(p.active); got != p.want {
			t.Errorf("period %d, %s: the window has %d, want %d", i, p.why, got, p.want)
		}
		if e.Len() < before {
			t.Errorf("period %d: %d were active and %d are", i, before, e.Len())
		}
	}
	// It ends at its bounds.
	for range 40 {
		period(50)
	}
	if got := e.WindowLimit(); got < 10 || got > 70 {
		t.Errorf("the window has %d, from 10 to 70 was allowed", got)
	}
}

func every(t *testing.T) map[string]passivation.Settings {
	t.Helper()
	all := map[string]passivation.Settings{"composite": passivation.Composite()}
	window := []passivation.Replacement{
		{},
		{Policy: passivation.LeastRecent},
		{Policy: passivation.LeastRecent, Levels: 3},
		{Policy: passivation.MostRecent},
		{Policy: passivation.LeastFrequent},
		{Policy: passivation.LeastFrequent, DynamicAging: true},
	}
	for _, w := range window {
		for _, main := range window[1:] {
			for _, filter := range []passivation.Filter{passivation.NoFilter, passivation.FrequencySketch} {
				for _, climb := range []bool{false, true} {
					all[fmt.Sprint(w, main, filter, climb)] = passivation.Settings{
						Limit: 1, IdleTimeout: 300, Replacement: main, Filter: filter,
						Window: passivation.Window{Replacement: w, Proportion: 0.3, Climb: passivation.Climb{Enabled: climb, Multiplier: 1}},
					}
				}
			}
		}
	}
	return all
}

// Whatever the settings, there are never more than the limit, who is named was
// active, and nobody gets lost.
func TestCombinations(t *testing.T) {
	t.Parallel()
	for name, s := range every(t) {
		rnd := rand.New(rand.NewPCG(1, 2))
		e := entities(t, s, 20)
		active, limit, now := map[string]bool{}, 20, time.Duration(0)
		drop := func(ids []string) {
			for _, id := range ids {
				if !active[id] {
					t.Fatalf("%s: %s is passivated and was not active", name, id)
				}
				delete(active, id)
			}
		}
		for range 3000 {
			now += time.Duration(rnd.IntN(20))
			id := fmt.Sprint(int(rnd.ExpFloat64() * 12))
			switch rnd.IntN(50) {
			case 0:
				limit = rnd.IntN(40)
				drop(e.SetLimit(limit))
			case 1:
				e.Remove(id)
				delete(active, id)
			case 2:
				drop(e.Tick(now))
			default:
				active[id] = true
				drop(e.Touch(now, id))
			}
			if e.Len() != len(active) || e.Len() > limit || e.Limit() != limit {
				t.Fatalf("%s: %d are active, want %d of at most %d", name, e.Len(), len(active), limit)
			}
		}
		drop(e.SetLimit(0))
		if len(active) > 0 {
			t.Errorf("%s: %v are left of none", name, active)
		}
	}
}

// One pass over many entities doesn't push out those that are used all the time.
func TestCompositeWithstandsAScan(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings  passivation.Settings
		low, high int
	}{
		"composite":    {passivation.Composite(), 0, 2}, // an estimate may be too high
		"least recent": {passivation.Settings{Limit: 1}, 100, 100},
	} {
		e := entities(t, test.settings, 200)
		for range 8 {
			for i := range 100 {
				e.Touch(0, fmt.Sprint("often", i))
			}
		}
		gone := map[string]bool{}
		for i := range 1000 {
			for _, id := range e.Touch(0, fmt.Sprint("once", i)) {
				gone[id] = true
			}
		}
		lost := 0
		for i := range 100 {
			if gone[fmt.Sprint("often", i)] {
				lost++
			}
		}
		if lost < test.low || lost > test.high {
			t.Errorf("%s: %d of 100 that are used often were lost in a scan", name, lost)
		}
	}
}

// An entity that is active costs nothing more.
func TestTouchAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	for name, s := range every(t) {
		e := entities(t, s, 100)
		ids := make([]string, 50)
		for i := range ids {
			ids[i] = fmt.Sprint(i)
			e.Touch(0, ids[i])
		}
		// Frequencies come and go with their bucket.
		if n := testing.AllocsPerRun(20, func() {
			for _, id := range ids {
				e.Touch(1, id)
			}
		}); n > 2*float64(len(ids)) || s.Replacement.Policy != passivation.LeastFrequent && s.Window.Replacement.Policy != passivation.LeastFrequent && n > 0 {
			t.Errorf("%s: %v allocations for %d accesses", name, n, len(ids))
		}
	}
}

func BenchmarkTouch(b *testing.B) {
	for name, s := range map[string]passivation.Settings{
		"idle": {}, "least recent": {Limit: 1}, "least frequent": {Limit: 1, Replacement: passivation.Replacement{Policy: passivation.LeastFrequent}},
		"aging":     {Limit: 1, Replacement: passivation.Replacement{Policy: passivation.LeastFrequent, DynamicAging: true}},
		"composite": passivation.Composite(),
	} {
		b.Run(name, func(b *testing.B) {
			rnd := rand.New(rand.NewPCG(1, 1))
			ids := make([]string, 1<<14)
			for i := range ids {
				ids[i] = fmt.Sprint(int(rnd.ExpFloat64() * 2000))
			}
			e := entities(b, s, 4000)
			b.ReportAllocs()
			for i := range b.N {
				e.Touch(time.Duration(i), ids[i%len(ids)])
			}
		})
	}
}
