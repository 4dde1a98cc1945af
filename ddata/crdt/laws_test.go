// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/crdt/crdttest"
	"github.com/refold-io/refold/internal/testkit/effort"
)

func word(r *rand.Rand) string { return string(rune('p' + r.IntN(4))) }

// gcounters and the following functions configure the types whose laws are checked.
func gcounters() crdttest.Config[crdt.GCounter] {
	return crdttest.Config[crdt.GCounter]{
		Change: func(r *rand.Rand, self *crdt.Self, c crdt.GCounter) (crdt.GCounter, error) {
			return c.Add(self, r.Uint64N(4)<<(r.UintN(3)*31)), nil
		},
		Read: func(c crdt.GCounter) any { return c.Big() },
	}
}

func pncounters() crdttest.Config[crdt.PNCounter] {
	return crdttest.Config[crdt.PNCounter]{
		Change: func(r *rand.Rand, self *crdt.Self, c crdt.PNCounter) (crdt.PNCounter, error) {
			return c.Add(self, (r.Int64N(7)-3)<<(r.UintN(2)*61)), nil
		},
		Read: func(c crdt.PNCounter) any { return c.Big() },
	}
}

func gsets() crdttest.Config[crdt.GSet[string]] {
	return crdttest.Config[crdt.GSet[string]]{
		Change: func(r *rand.Rand, _ *crdt.Self, s crdt.GSet[string]) (crdt.GSet[string], error) {
			return s.Add(word(r), word(r))
		},
		Read: func(s crdt.GSet[string]) any { return list(s.Elements()) },
	}
}

func orsets() crdttest.Config[crdt.ORSet[string]] {
	return crdttest.Config[crdt.ORSet[string]]{
		Change: func(r *rand.Rand, self *crdt.Self, s crdt.ORSet[string]) (crdt.ORSet[string], error) {
			for range 1 + r.IntN(2) {
				var err error
				switch r.IntN(8) {
				case 0:
					s = s.Clear()
				case 1, 2, 3:
					s, err = s.Remove(self, word(r))
				default:
					s, err = s.Add(self, word(r))
				}
				if err != nil {
					return s, err
				}
			}
			return s, nil
		},
		Read: func(s crdt.ORSet[string]) any { return list(s.Elements()) },
	}
}

func flags() crdttest.Config[crdt.Flag] {
	return crdttest.Config[crdt.Flag]{
		Change: func(r *rand.Rand, _ *crdt.Self, f crdt.Flag) (crdt.Flag, error) {
			if r.IntN(3) > 0 {
				return f, nil
			}
			return f.Enable(), nil
		},
		Read: func(f crdt.Flag) any { return f.Enabled() },
	}
}

func registers() crdttest.Config[crdt.LWWRegister[int]] {
	return crdttest.Config[crdt.LWWRegister[int]]{
		Change: func(r *rand.Rand, self *crdt.Self, g crdt.LWWRegister[int]) (crdt.LWWRegister[int], error) {
			if r.IntN(4) == 0 { // an invalid clock gives equal timestamps, so the bytes decide
				return g.SetBy(self, r.IntN(9), func(*crdt.Self, int64, int) (int64, error) { return 1_010, nil })
			}
			return g.Set(self, r.IntN(9))
		},
		Read: func(g crdt.LWWRegister[int]) any { return must(g.Value()) },
	}
}

func vectors() crdttest.Config[crdt.VersionVector] {
	return crdttest.Config[crdt.VersionVector]{
		Change: func(_ *rand.Rand, self *crdt.Self, v crdt.VersionVector) (crdt.VersionVector, error) {
			return v.Increment(self), nil
		},
	}
}

type counters = crdt.ORMap[string, crdt.GCounter]

// maps configures ORMaps. If remove is set, keys are also removed.
func maps(remove bool) crdttest.Config[counters] {
	return crdttest.Config[counters]{
		Change: func(r *rand.Rand, self *crdt.Self, m counters) (counters, error) {
			if remove && r.IntN(3) == 0 {
				return m.Remove(self, word(r))
			}
			return m.Update(self, word(r), func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(self, 1), nil })
		},
		Read: func(m counters) any {
			return entries(m.All(), func(c crdt.GCounter) any { return c.Value() })
		},
	}
}

func counterMaps(remove bool) crdttest.Config[crdt.PNCounterMap[string]] {
	return crdttest.Config[crdt.PNCounterMap[string]]{
		Change: func(r *rand.Rand, self *crdt.Self, m crdt.PNCounterMap[string]) (crdt.PNCounterMap[string], error) {
			if remove && r.IntN(3) == 0 {
				return m.Remove(self, word(r))
			}
			return m.Add(self, word(r), r.Int64N(5)-2)
		},
		Read: func(m crdt.PNCounterMap[string]) any {
			return entries(m.All(), func(c crdt.PNCounter) any { return c.Value() })
		},
	}
}

func lwwMaps(remove bool) crdttest.Config[crdt.LWWMap[string, int]] {
	return crdttest.Config[crdt.LWWMap[string, int]]{
		Change: func(r *rand.Rand, self *crdt.Self, m crdt.LWWMap[string, int]) (crdt.LWWMap[string, int], error) {
			if remove && r.IntN(3) == 0 {
				return m.Remove(self, word(r))
			}
			return m.Put(self, word(r), r.IntN(9))
		},
		Read: func(m crdt.LWWMap[string, int]) any { return entries(m.All(), func(i int) any { return i }) },
	}
}

type sets = crdt.ORMultiMap[string, string]

func multiMaps(deltas, remove bool) crdttest.Config[sets] {
	var empty sets
	if deltas {
		empty = must(empty.WithValueDeltas())
	}
	return crdttest.Config[sets]{
		Empty: empty,
		Change: func(r *rand.Rand, self *crdt.Self, m sets) (sets, error) {
			key := word(r)
			if !remove {
				return m.Add(self, key, word(r))
			}
			switch r.IntN(8) {
			case 0:
				return m.Remove(self, key)
			case 1:
				return m.Put(self, key, word(r), word(r))
			case 2:
				return m.Replace(self, key, word(r), word(r))
			case 3, 4:
				return m.RemoveElements(self, key, word(r))
			}
			return m.Add(self, key, word(r))
		},
		Read: func(m sets) any { return showSets(m) },
	}
}

func entries[V any](all func(yield func(crdt.Entry[string, V], error) bool), read func(V) any) string {
	var texts []string
	for e, err := range all {
		if err != nil {
			return err.Error()
		}
		texts = append(texts, fmt.Sprintf("%s:%v", e.Key, read(e.Value)))
	}
	return strings.Join(texts, " ")
}

func TestLaws(t *testing.T) {
	t.Parallel()
	laws(t, "GCounter", gcounters())
	laws(t, "PNCounter", pncounters())
	laws(t, "GSet", gsets())
	laws(t, "ORSet", orsets())
	laws(t, "Flag", flags())
	laws(t, "LWWRegister", registers())
	laws(t, "VersionVector", vectors())
	laws(t, "ORMap without removals", maps(false))
	laws(t, "PNCounterMap without removals", counterMaps(false))
	laws(t, "LWWMap without removals", lwwMaps(false))
	laws(t, "ORMultiMap without removals", multiMaps(false, false))

	const racing = crdttest.Associative | crdttest.DeltasFold | crdttest.DeltasJoin
	laws(t, "ORMap", except(maps(true), racing))
	laws(t, "PNCounterMap", except(counterMaps(true), racing))
	laws(t, "LWWMap", except(lwwMaps(true), racing))
	laws(t, "ORMultiMap", except(multiMaps(false, true), racing))
	laws(t, "ORMultiMap with value deltas, without removals", byValue(multiMaps(true, false)))
	laws(t, "ORMultiMap with value deltas", byValue(except(multiMaps(true, true), racing)))
}

func except[T any](cfg crdttest.Config[T], laws crdttest.Law) crdttest.Config[T] {
	cfg.Except = laws
	return cfg
}

func byValue[T any](cfg crdttest.Config[T]) crdttest.Config[T] {
	cfg.ByValue = true
	return cfg
}

// If keys are removed while other nodes update them, the result depends on the order of messages.
// All nodes still converge, see TestLaws.
func TestLawsBrokenByRemovals(t *testing.T) {
	t.Parallel()
	const racing = crdttest.Associative | crdttest.DeltasFold | crdttest.DeltasJoin
	breaks(t, "ORMap", maps(true), racing)
	breaks(t, "PNCounterMap", counterMaps(true), racing)
	breaks(t, "LWWMap", lwwMaps(true), racing)
	breaks(t, "ORMultiMap", multiMaps(false, true), racing)
	breaks(t, "ORMultiMap with value deltas", byValue(multiMaps(true, true)), racing)
	// Compared by bytes, this law fails even if nothing is removed.
	breaks(t, "ORMultiMap with value deltas, without removals", multiMaps(true, false), crdttest.DeltasJoin)
}

func breaks[T any](t *testing.T, name string, cfg crdttest.Config[T], laws crdttest.Law) {
	t.Helper()
	cfg.Histories = 5000
	for _, law := range crdttest.Laws() {
		if laws&law == 0 {
			continue
		}
		t.Run(name+"/"+law.String(), func(t *testing.T) {
			t.Parallel()
			err := crdttest.Check(cfg, law)
			if err == nil {
				t.Fatalf("the law holds in %d histories: correct the documentation", cfg.Histories)
			}
			t.Log(err)
		})
	}
}

func laws[T any](t *testing.T, name string, cfg crdttest.Config[T]) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		cfg.Histories = effort.Count(10, 50, 5000)
		crdttest.Run(t, cfg)
	})
}
