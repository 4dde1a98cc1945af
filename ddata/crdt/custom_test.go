// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/crdt/crdttest"
	"github.com/refold-io/refold/identity"
)

// Tally is a user-defined type. It delegates deltas and pruning to the counter that it contains.
type Tally struct{ c crdt.PNCounter }

func (t Tally) Add(self *crdt.Self, n int64) Tally { return Tally{t.c.Add(self, n)} }

func (t Tally) Merge(other Tally) (Tally, error)        { return tally(t.c.Merge(other.c)) }
func (t Tally) AppendBinary(dst []byte) ([]byte, error) { return t.c.AppendBinary(dst) }
func (t Tally) Delta() (crdt.Delta, bool)               { return t.c.Delta() }
func (t Tally) MergeDelta(d crdt.Delta) (Tally, error)  { return tally(t.c.MergeDelta(d)) }

func (t Tally) ResetDelta() Tally                       { return Tally{t.c.ResetDelta()} }
func (t Tally) ModifiedBy() []identity.Node             { return t.c.ModifiedBy() }
func (t Tally) NeedsPruning(removed identity.Node) bool { return t.c.NeedsPruning(removed) }

func (t Tally) Cleanup(removed identity.Node) (Tally, error)       { return tally(t.c.Cleanup(removed)) }
func (t Tally) Prune(s *crdt.Self, r identity.Node) (Tally, error) { return tally(t.c.Prune(s, r)) }

func tally(c crdt.PNCounter, err error) (Tally, error) { return Tally{c}, err }

func tallyDefinition() crdt.Definition {
	return crdt.DefineDelta("tally", crdt.FreeDeltas, func(data []byte) (Tally, error) {
		v, err := (*crdt.Types)(nil).Decode(data)
		if err != nil {
			return Tally{}, err
		}
		return tally(crdt.As[crdt.PNCounter](nil, v))
	}, (*crdt.Types)(nil).DecodeDelta)
}

func TestLawsOfCustomTypes(t *testing.T) {
	t.Parallel()
	types := allTypes(t)
	laws(t, "TwoPhaseSet", crdttest.Config[TwoPhaseSet]{
		Types: types,
		Change: func(r *rand.Rand, _ *crdt.Self, s TwoPhaseSet) (TwoPhaseSet, error) {
			if r.IntN(3) == 0 {
				return s.Remove(word(r))
			}
			return s.Add(word(r))
		},
	})
	laws(t, "Tally", crdttest.Config[Tally]{
		Types:  types,
		Change: func(r *rand.Rand, self *crdt.Self, t Tally) (Tally, error) { return t.Add(self, r.Int64N(5)-2), nil },
		Read:   func(t Tally) any { return t.c.Value() },
	})
	laws(t, "in a map", crdttest.Config[crdt.ORMap[string, Tally]]{
		Types: types,
		Change: func(r *rand.Rand, self *crdt.Self, m crdt.ORMap[string, Tally]) (crdt.ORMap[string, Tally], error) {
			m, err := crdt.With(types, m)
			if err != nil {
				return m, err
			}
			return m.Update(self, word(r), func(t Tally) (Tally, error) { return t.Add(self, 1), nil })
		},
		Read: func(m crdt.ORMap[string, Tally]) any {
			return entries(m.All(), func(t Tally) any { return t.c.Value() })
		},
	})
	laws(t, "elements with a name", crdttest.Config[crdt.ORSet[product]]{
		Types: types,
		Change: func(r *rand.Rand, self *crdt.Self, s crdt.ORSet[product]) (crdt.ORSet[product], error) {
			s, err := crdt.With(types, s)
			if err != nil {
				return s, err
			}
			if r.IntN(3) == 0 {
				return s.Remove(self, product{word(r), 1})
			}
			return s.Add(self, product{word(r), 1})
		},
		Read: func(s crdt.ORSet[product]) any { return list(s.Elements()) },
	})
}

func TestCustomTypes(t *testing.T) {
	t.Parallel()
	types := allTypes(t)
	a := self(t, "a")
	v := must(types.Value(Tally{}.Add(a, 3)))
	if v.Type() != "tally" || v.Deltas() != crdt.FreeDeltas || v.Delta().NeedsCausal() || !v.NeedsPruning(a.Node()) {
		t.Errorf("got type %s with deltas %v, want tally with FreeDeltas", v.Type(), v.Deltas())
	}
	if got := must(v.Delta().Zero().MergeDelta(v.Delta())); must(crdt.As[Tally](types, got)).c.Value() != 3 {
		t.Error("MergeDelta of the delta does not give 3")
	}
	for subject, err := range map[string]error{
		"undefined":           second(types.Value(struct{}{})),
		"undefined, no types": second((*crdt.Types)(nil).Value(Tally{})),
		"read, no types":      second(crdt.As[Tally](nil, v)),
		"in a map, no types":  second(crdt.ORMap[string, Tally]{}.Put(a, "k", Tally{})),
		"decoded, no types":   second((*crdt.Types)(nil).Decode([]byte(bytesOf(v)))),
	} {
		if !errors.Is(err, crdt.ErrUndefined) {
			t.Errorf("%s: got error %v, want ErrUndefined", subject, err)
		}
	}
	for subject, err := range map[string]error{
		"as another type":          second(crdt.As[TwoPhaseSet](types, v)),
		"as a counter":             second(crdt.As[crdt.PNCounter](types, v)),
		"merged with a counter":    second(v.Merge(value(crdt.PNCounter{}.Add(a, 1)))),
		"merged with another type": second(v.Merge(must(types.Value(TwoPhaseSet{})))),
		"delta of another type":    second(v.MergeDelta(value(crdt.PNCounter{}.Add(a, 1)).Delta())),
	} {
		if !errors.Is(err, crdt.ErrType) {
			t.Errorf("%s: got error %v, want ErrType", subject, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestNewTypesErrors(t *testing.T) {
	t.Parallel()
	_, err := crdt.NewTypes(codec.Types(codec.Name[product]("p"), codec.Name[product]("q")),
		crdt.Definition{}, crdt.Define("", DecodeTwoPhaseSet), tallyDefinition(), tallyDefinition(),
		crdt.Define(strings.Repeat("x", 65), DecodeTwoPhaseSet))
	for _, want := range []string{"has two names", "empty Definition", "name has 0 bytes", `name "tally" is defined for`, "has 65 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error %v does not contain %q", err, want)
		}
	}
}

// panics is a type whose methods panic.
type panics struct{ on bool }

func (p panics) Merge(panics) (panics, error)            { panic("merging") }
func (p panics) ModifiedBy() []identity.Node             { panic("inspecting") }
func (p panics) NeedsPruning(identity.Node) bool         { panic("inspecting") }
func (p panics) AppendBinary(dst []byte) ([]byte, error) { return p.append(dst), nil }

func (p panics) Prune(*crdt.Self, identity.Node) (panics, error) { panic("pruning") }
func (p panics) Cleanup(identity.Node) (panics, error)           { panic("cleaning up") }

func (p panics) append(dst []byte) []byte {
	if p.on {
		panic("encoding")
	}
	return append(dst, 7)
}

func TestPanicsOfCustomTypesAreErrors(t *testing.T) {
	t.Parallel()
	types := must(crdt.NewTypes(nil, crdt.Define("panics", func([]byte) (panics, error) { panic("decoding") })))
	v, on := must(types.Value(panics{})), must(types.Value(panics{on: true}))
	for want, err := range map[string]error{
		"merging":  second(v.Merge(v)),
		"encoding": second(on.AppendBinary(nil)),
		"decoding": second(types.Decode([]byte(bytesOf(v)))),
	} {
		if err == nil || !strings.Contains(err.Error(), "panic: "+want) {
			t.Errorf("got error %v, want one that contains %q", err, "panic: "+want)
		}
	}
	if v.NeedsPruning(node("a")) || v.ModifiedBy() != nil {
		t.Error("a value whose NeedsPruning and ModifiedBy panic was reported as modified")
	}
}

// TestCustomTypesHaveOneForm checks that decoding rejects data that differs from the encoding of
// the decoded value.
func TestCustomTypesHaveOneForm(t *testing.T) {
	t.Parallel()
	lenient := must(crdt.NewTypes(nil, crdt.Define("two-phase-set", func(data []byte) (TwoPhaseSet, error) {
		if s, err := DecodeTwoPhaseSet(data); err == nil {
			return s, nil
		}
		return TwoPhaseSet{}, nil
	})))
	data := []byte(bytesOf(must(lenient.Value(TwoPhaseSet{}))))
	if _, err := lenient.Decode(data); err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] = 9
	if v, err := lenient.Decode(data); !errors.Is(err, crdt.ErrMalformed) {
		t.Errorf("Decode returned %v, %v, want ErrMalformed", fmt.Sprint(v), err)
	}
}
