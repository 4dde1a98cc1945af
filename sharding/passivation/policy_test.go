// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/sharding/passivation"
)

func limited(r passivation.Replacement) passivation.Settings {
	return passivation.Settings{Limit: 1, Replacement: r}
}

// Each script shows whom which access makes go.
func TestPolicies(t *testing.T) {
	t.Parallel()
	recent := passivation.Replacement{Policy: passivation.LeastRecent}
	most := passivation.Replacement{Policy: passivation.MostRecent}
	frequent := passivation.Replacement{Policy: passivation.LeastFrequent}
	aging := passivation.Replacement{Policy: passivation.LeastFrequent, DynamicAging: true}
	two := passivation.Replacement{Levels: 2}
	for what, test := range map[string]struct {
		policy passivation.Replacement
		limit  int
		want   string
	}{
		"least recent":                     {recent, 3, "abcd(a)e(b)"},
		"least recent is the default":      {passivation.Replacement{}, 3, "abcd(a)e(b)"},
		"least recent, used again":         {recent, 3, "abcad(b)ae(c)"},
		"least recent, a smaller limit":    {recent, 4, "abcda2(bc)"},
		"least recent, a larger limit":     {recent, 2, "ab4cde(a)"},
		"least recent, one ends":           {recent, 3, "abc-ade(b)"},
		"least recent, limit 0":            {recent, 0, "a(a)a(a)b(b)"},
		"least recent, limit 0 later":      {recent, 3, "abc0(abc)d(d)"},
		"most recent":                      {most, 3, "abcd(c)e(d)"},
		"most recent, used again":          {most, 3, "abcad(a)"},
		"most recent, a smaller limit":     {most, 4, "abcda2(ad)"},
		"most recent, limit 0":             {most, 0, "a(a)"},
		"least frequent":                   {frequent, 3, "aabbcd(c)e(d)d(e)dd"},
		"least frequent, the oldest":       {frequent, 3, "abcd(a)e(b)"},
		"least frequent, of a count":       {frequent, 3, "aaabccbd(c)"},
		"least frequent, not the newcomer": {frequent, 2, "aaabbc(b)"},
		"least frequent, a smaller limit":  {frequent, 4, "abcdbad2(cb)"},
		"least frequent, one ends":         {frequent, 3, "abbcc-ad e(d)"},
		"least frequent, for ever":         {frequent, 2, "aaaaaabc(b)d(c)e(d)f(e)e(f)f(e)"},
		"least frequent, limit 0":          {frequent, 0, "a(a)"},
		// With aging: c comes with 2, d with 3, e with 4; a has 5 from the beginning.
		"aging":                     {aging, 2, "aaaaabc(b)d(c)e(d)f(e)g(a)"},
		"aging, used again":         {aging, 2, "aaaaabc(b)d(c)ae(d)f(e)g(f)h(g)i(h)j(a)"},
		"segments":                  {two, 4, "abcde(a)"},
		"segments, the second time": {two, 4, "abacde(b)f(c)"},
		// a, b and c are promoted, and a falls back as the most recent of the lower level.
		"segments, overflow": {two, 4, "abcabcde(a)f(d)g(e)"},
		// c and d are above, a and b fell down, and go when there is less room.
		"segments, a smaller limit": {two, 4, "abcdabcd2(ab)"},
		"segments, an odd limit":    {two, 3, "aabbcd(a)"}, // one above, two below
		"segments, one ends":        {two, 4, "abcab-acdef(d)"},
		"segments, the top level":   {two, 4, "abababcde(c)f(d)ab"},
		"segments, limit 1":         {two, 1, "aab(a)bba(b)"},
		"three segments, proportions": {
			passivation.Replacement{Proportions: []float64{0.25, 0.25, 0.5}},
			4,
			// a and b in the top, c in the middle, d below: newcomers replace d.
			"aaabbbccde(d)f(e)",
		},
	} {
		e := entities(t, limited(test.policy), test.limit)
		script := strings.NewReplacer("(", "<", ")", ">").Replace(test.want)
		for from := strings.IndexByte(script, '<'); from >= 0; from = strings.IndexByte(script, '<') {
			script = script[:from] + script[strings.IndexByte(script, '>')+1:]
		}
		if got := play(e, script); got != test.want {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
	}
}

// reference is a policy that looks at all entities each time.
type reference struct {
	r       passivation.Replacement
	limit   int
	clock   int
	age     int
	all     []*member
	levels  int
	portion []float64
}

type member struct {
	id                            string
	at, count, priority, level, n int
}

func (f *reference) find(id string) *member {
	i := slices.IndexFunc(f.all, func(m *member) bool { return m.id == id })
	if i < 0 {
		return nil
	}
	return f.all[i]
}

func (f *reference) drop(id string) {
	f.all = slices.DeleteFunc(f.all, func(m *member) bool { return m.id == id })
}

func (f *reference) level(n int) []*member {
	var in []*member
	for _, m := range f.all {
		if m.level == n {
			in = append(in, m)
		}
	}
	slices.SortFunc(in, func(a, b *member) int { return a.n - b.n })
	return in
}

func (f *reference) settle() {
	for level := f.levels - 1; level > 0; level-- {
		for {
			in := f.level(level)
			if len(in) <= int(f.portion[level]*float64(f.limit)+1e-9) {
				break
			}
			f.clock++
			in[0].level, in[0].n = level-1, f.clock
		}
	}
}

func (f *reference) evict() string {
	better := func(a, b *member) bool { // a goes before b
		switch f.r.Policy {
		case passivation.MostRecent:
			return a.at > b.at
		case passivation.LeastFrequent:
			return a.priority < b.priority || a.priority == b.priority && a.at < b.at
		case passivation.LeastRecent:
		}
		return a.level < b.level || a.level == b.level && a.n < b.n
	}
	victim := f.all[0]
	for _, m := range f.all {
		if better(m, victim) {
			victim = m
		}
	}
	if f.r.DynamicAging {
		f.age = victim.priority
	}
	f.drop(victim.id)
	return victim.id
}

func (f *reference) touch(id string) []string {
	f.clock++
	var gone []string
	m := f.find(id)
	if m == nil {
		if f.limit == 0 {
			return []string{id}
		}
		if len(f.all) == f.limit {
			gone = append(gone, f.evict())
		}
		m = &member{id: id, level: -1}
		f.all = append(f.all, m)
	}
	m.at, m.n = f.clock, f.clock
	m.count = min(m.count+1, 4095)
	m.priority = m.count + f.age
	m.level = min(m.level+1, f.levels-1)
	f.settle()
	return gone
}

func (f *reference) setLimit(n int) []string {
	f.limit = n
	f.settle()
	var gone []string
	for len(f.all) > n {
		gone = append(gone, f.evict())
	}
	return gone
}

// Each policy does the same as one that looks at all entities each time.
func TestPoliciesAgainstReference(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]passivation.Replacement{
		"least recent":   {Policy: passivation.LeastRecent},
		"most recent":    {Policy: passivation.MostRecent},
		"two levels":     {Policy: passivation.LeastRecent, Proportions: []float64{0.2, 0.8}},
		"four levels":    {Policy: passivation.LeastRecent, Levels: 4},
		"least frequent": {Policy: passivation.LeastFrequent},
		"aging":          {Policy: passivation.LeastFrequent, DynamicAging: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(25) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				limit := rnd.IntN(12)
				f := &reference{r: r, limit: limit, levels: max(1, r.Levels, len(r.Proportions)), portion: r.Proportions}
				if f.portion == nil {
					f.portion = slices.Repeat([]float64{1 / float64(f.levels)}, f.levels)
				}
				e := entities(t, limited(r), limit)
				for step := range 1500 {
					var got, want []string
					id := fmt.Sprint(int(rnd.ExpFloat64() * 6))
					switch rnd.IntN(40) {
					case 0:
						n := rnd.IntN(12)
						got, want = e.SetLimit(n), f.setLimit(n)
					case 1, 2:
						e.Remove(id)
						f.drop(id)
					case 3: // one that is used very often
						for range rnd.IntN(3000) {
							if m := f.find("hot"); m == nil {
								break
							}
							got, want = e.Touch(0, "hot"), f.touch("hot")
						}
					case 4:
						got, want = e.Touch(0, "hot"), f.touch("hot")
					default:
						got, want = e.Touch(0, id), f.touch(id)
					}
					if !slices.Equal(got, want) || e.Len() != len(f.all) {
						t.Fatalf("seed %d, step %d: %v, want %v; %d active, want %d", seed, step, got, want, e.Len(), len(f.all))
					}
				}
			}
		})
	}
}
