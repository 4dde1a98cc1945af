// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/crdt/crdttest"
	"github.com/refold-io/refold/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faults are the faults of a double.
type faults struct {
	addOnMerge   bool // Merge adds the counts, so it is not idempotent
	keepLeft     bool // Merge keeps the count of the receiver
	lossy        bool // encoding omits one of three counts
	deltaMissing bool // deltas lack changes
	prune        bool // Prune leaves history
	cleanup      bool
	keeps        bool // decoding retains the input
	shorter      bool // merging loses the lower count
}

// double is the highest number that each of three nodes has reached, with faults.
type double struct {
	n     [3]uint64
	delta *[3]uint64
	raw   []byte
	f     *faults
}

func (d double) Merge(o double) (double, error) {
	m := double{n: d.n, f: d.fault(o)}
	for i := range m.n {
		switch f := m.f; {
		case f.addOnMerge:
			m.n[i] += o.n[i]
		case f.keepLeft && d.n[i] > 0 && o.delta == nil:
		case f.shorter && d.n[i] > 0 && o.n[i] > d.n[i]:
			m.n[i] = o.n[i] - 1
		default:
			m.n[i] = max(d.n[i], o.n[i])
		}
	}
	return m, nil
}

func (d double) fault(o double) *faults {
	if d.f != nil {
		return d.f
	}
	if o.f != nil {
		return o.f
	}
	return &faults{}
}

func (d double) AppendBinary(dst []byte) ([]byte, error) {
	if d.raw != nil {
		return append(dst, d.raw...), nil
	}
	for i, n := range d.n {
		if d.f != nil && d.f.lossy && i == 2 {
			n = 0
		}
		dst = binary.BigEndian.AppendUint64(dst, n)
	}
	return dst, nil
}

func (d double) Delta() (double, bool) {
	if d.delta == nil {
		return double{f: d.f}, false
	}
	return double{n: *d.delta, f: d.f}, true
}

func (d double) MergeDelta(o double) (double, error) { return d.Merge(o) }

func (d double) ResetDelta() double { return double{n: d.n, raw: d.raw, f: d.f} }

func node(i int) identity.Node { return identity.Node{Name: string(rune('a' + i)), UID: uint64(i) + 1} }

func (d double) ModifiedBy() (nodes []identity.Node) {
	for i, n := range d.n {
		if n > 0 {
			nodes = append(nodes, node(i))
		}
	}
	return nodes
}

func (d double) NeedsPruning(n identity.Node) bool { return d.n[n.UID-1] > 0 }

func (d double) Prune(self *crdt.Self, n identity.Node) (double, error) {
	if d.f != nil && d.f.prune {
		return d, nil
	}
	into, from := &d.n[self.Node().UID-1], &d.n[n.UID-1]
	*into, *from = *into+*from, 0
	return d.ResetDelta(), nil
}

func (d double) Cleanup(n identity.Node) (double, error) {
	if d.f == nil || !d.f.cleanup {
		d.n[n.UID-1] = 0
	}
	return d.ResetDelta(), nil
}

func config(f *faults) crdttest.Config[double] {
	decode := func(data []byte) (double, error) {
		d := double{f: f}
		if len(data) != 24 {
			return d, errors.New("another length")
		}
		for i := range d.n {
			d.n[i] = binary.BigEndian.Uint64(data[8*i:])
		}
		if f.keeps {
			d.raw = data
		}
		return d, nil
	}
	types, err := crdt.NewTypes(nil, crdt.DefineDelta("double", crdt.FreeDeltas, decode, decode))
	if err != nil {
		panic(err)
	}
	return crdttest.Config[double]{
		Types: types,
		Empty: double{f: f},
		Change: func(r *rand.Rand, self *crdt.Self, d double) (double, error) {
			i := self.Node().UID - 1
			d.n[i] += 1 + r.Uint64N(3)
			d.delta = &[3]uint64{}
			if !f.deltaMissing {
				d.delta[i] = d.n[i]
			}
			return d, nil
		},
		Read: func(d double) any { return d.n[0] + d.n[1] + d.n[2] },
	}
}

func TestCorrectTypePasses(t *testing.T) {
	t.Parallel()
	crdttest.Run(t, config(&faults{}))
}

// Check finds a violation of each law by a faulty type.
func TestLawsFindFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		f    faults
		laws []crdttest.Law
	}{
		"Merge adds the counts":      {faults{addOnMerge: true}, []crdttest.Law{crdttest.Idempotent, crdttest.Absorbing, crdttest.Converges, crdttest.DeltasFold}},
		"Merge keeps its own count":  {faults{keepLeft: true}, []crdttest.Law{crdttest.Commutative, crdttest.Converges}},
		"Merge loses a count":        {faults{shorter: true}, []crdttest.Law{crdttest.Commutative, crdttest.Associative}},
		"encoding loses a count":     {faults{lossy: true}, []crdttest.Law{crdttest.OneForm}},
		"decoding retains the bytes": {faults{keeps: true}, []crdttest.Law{crdttest.OneForm}},
		"deltas lack changes":        {faults{deltaMissing: true}, []crdttest.Law{crdttest.DeltasFold}},
		"pruning does nothing":       {faults{prune: true}, []crdttest.Law{crdttest.Prunes}},
		"Cleanup does nothing":       {faults{cleanup: true}, []crdttest.Law{crdttest.Prunes}},
	} {
		for _, law := range tt.laws {
			err := crdttest.Check(config(&tt.f), law)
			if err == nil {
				t.Errorf("%s: Check found no violation of %v", name, law)
				continue
			}
			if !strings.Contains(err.Error(), law.String()) {
				t.Errorf("%s: the error does not contain the law %v: %v", name, law, err)
			}
		}
	}
}

// The printed history is the shortest one.
func TestHistoriesAreShortened(t *testing.T) {
	t.Parallel()
	err := crdttest.Check(config(&faults{addOnMerge: true}), crdttest.Idempotent)
	if err == nil {
		t.Fatal("Check found no violation")
	}
	if n := strings.Count(err.Error(), "changes to"); n != 1 {
		t.Errorf("got %d changes in the history, want 1: %v", n, err)
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	err := crdttest.Check(crdttest.Config[double]{Nodes: 2, Steps: -1, ByValue: true, Except: crdttest.Converges}, crdttest.Commutative)
	for _, want := range []string{"Change", "Nodes", "Steps", "ByValue", "Except"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+want) {
			t.Errorf("error %v does not contain %s", err, want)
		}
	}
	if err := crdttest.Check(config(&faults{}), crdttest.Commutative|crdttest.Prunes); err == nil {
		t.Error("Check accepted two laws")
	}
}
