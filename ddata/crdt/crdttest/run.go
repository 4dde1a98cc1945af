// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
)

// Run checks all laws except Config.Except, each as a parallel subtest.
func Run[T any](t *testing.T, cfg Config[T]) {
	t.Helper()
	for _, law := range Laws() {
		if cfg.Except&law != 0 {
			t.Logf("%v is excepted", law)
			continue
		}
		t.Run(law.String(), func(t *testing.T) {
			t.Parallel()
			if err := Check(cfg, law); err != nil {
				t.Error(err)
			}
		})
	}
}

// Check searches for a history that violates a law. The error contains the shortest one found, or
// describes an invalid Config.
func Check[T any](cfg Config[T], law Law) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return err
	}
	s := cfg.subject()
	return s.check(law)
}

// subject is a Config without its type parameter. In its functions a value is that of a T.
type subject struct {
	types  *crdt.Types
	empty  func() (crdt.Value, error)
	modify func(r *rand.Rand, self *crdt.Self, v crdt.Value) (crdt.Value, error)
	read   func(v crdt.Value) any // nil if Config.Read is

	byValue                 bool
	except                  Law
	nodes, steps, histories int
	seed                    uint64
}

func (c Config[T]) subject() *subject {
	s := &subject{
		types: c.Types, byValue: c.ByValue, except: c.Except, nodes: c.Nodes, steps: c.Steps, histories: c.Histories, seed: c.Seed,
		empty: func() (crdt.Value, error) { return c.Types.Value(c.Empty) },
		modify: func(r *rand.Rand, self *crdt.Self, v crdt.Value) (crdt.Value, error) {
			changed, err := c.Change(r, self, must(crdt.As[T](c.Types, v)))
			if err != nil {
				return crdt.Value{}, err
			}
			return must(c.Types.Value(changed)), nil
		},
	}
	if c.Read != nil {
		s.read = func(v crdt.Value) any { return c.Read(must(crdt.As[T](c.Types, v))) }
	}
	return s
}

func (s *subject) check(law Law) error {
	for i := range uint64(s.histories) { //nolint:gosec // validated
		steps := s.history(rand.New(rand.NewPCG(s.seed, i)))
		err := s.try(law, steps, nil)
		if err == nil {
			continue
		}
		steps = s.shorten(law, steps)
		var shown []string
		if last := s.try(law, steps, &shown); last != nil {
			err = last
		}
		return fmt.Errorf("%v is violated, seed %d, history %d:\n%s\n%w", law, s.seed, i, strings.Join(shown, "\n"), err)
	}
	return nil
}

// shorten removes steps as long as the remaining steps still violate the law.
func (s *subject) shorten(law Law, steps []step) []step {
	for again := true; again; {
		again = false
		for i := range slices.Backward(steps) {
			fewer := slices.Delete(slices.Clone(steps), i, i+1)
			if s.try(law, fewer, nil) != nil {
				steps, again = fewer, true
			}
		}
	}
	return steps
}

// try runs a history and checks one law. A panic is a violation.
func (s *subject) try(law Law, steps []step, shown *[]string) (err error) {
	check := s.checks()[law]
	if check == nil {
		return fmt.Errorf("crdttest: %d is not a law", law)
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			err = p.error
		default:
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	check(s.play(steps, shown))
	return nil
}

func (*subject) checks() map[Law]func(*world) {
	return map[Law]func(*world){
		Commutative: (*world).commutative, Associative: (*world).associative, Idempotent: (*world).idempotent,
		Absorbing: (*world).absorbing, Converges: func(w *world) { w.converge() }, OneForm: (*world).oneForm,
		MergesChanges: (*world).mergesChanges, DeltasFold: (*world).deltasFold, DeltasJoin: (*world).deltasJoin,
		Prunes: (*world).prunes,
	}
}

// Law is a law or a set of laws.
type Law uint

// The laws, for any values a, b and c that the nodes of a history hold. + is Merge.
const (
	// Commutative: a+b = b+a, with the same bytes.
	Commutative Law = 1 << iota
	// Associative: (a+b)+c = a+(b+c).
	Associative
	// Idempotent: a+a = a.
	Idempotent
	// Absorbing: (a+b)+a = a+b. A merge never loses anything: values only grow.
	Absorbing
	// Converges: nodes that repeatedly exchange values in any order end with the same bytes.
	Converges
	// OneForm: encoding and decoding a value or a delta gives the same value and the same bytes,
	// and a prefix of the bytes does not decode.
	OneForm
	// MergesChanges: merging a value with a changed copy of it gives the same result as merging it
	// with the decoded form of that copy. Types may have a short cut for merging a changed copy.
	MergesChanges
	// DeltasFold: applying the missing deltas of another node in causal order gives the same result
	// as merging its value. For types with FreeDeltas, this also holds for any order and for
	// repeated deltas.
	DeltasFold
	// DeltasJoin: applying one delta merged from several deltas of a node gives the same result as
	// applying them one by one.
	DeltasJoin
	// Prunes: once all nodes have the same value, one node can take over the history of another and
	// the other nodes can clean it up. This does not change the meaning of the value. For
	// Associative types, merging an older value that was cleaned up does not change the meaning
	// either.
	Prunes
)

// String returns the name of a single law.
func (l Law) String() string {
	if bits.OnesCount(uint(l)) != 1 || l > Prunes {
		return "several laws"
	}
	return [...]string{
		"Commutative", "Associative", "Idempotent", "Absorbing", "Converges", "OneForm", "MergesChanges", "DeltasFold", "DeltasJoin", "Prunes",
	}[bits.TrailingZeros(uint(l))]
}

// Laws returns all laws, as single laws.
func Laws() []Law {
	var laws []Law
	for l := Commutative; l <= Prunes; l <<= 1 {
		laws = append(laws, l)
	}
	return laws
}

// Config configures the checks of the type T.
type Config[T any] struct {
	// Types defines T if it is not a type of package crdt. Defaults to nil.
	Types *crdt.Types
	// Empty is the initial value of all nodes. Defaults to the zero value.
	Empty T
	// Change makes a random change, drawn only from r. It may return its argument. Required.
	Change func(r *rand.Rand, self *crdt.Self, v T) (T, error)
	// Read returns the meaning of a value in a form that fmt prints equally for equal meanings.
	// Failures show it. Defaults to the encoded form.
	Read func(v T) any
	// ByValue compares the results of Read in the laws Idempotent, Associative, Absorbing,
	// DeltasFold and DeltasJoin. Use it for types whose values may hold irrelevant history.
	// Defaults to comparing the encoded form.
	ByValue bool
	// Except is the set of laws that the type does not satisfy. It must not contain Converges.
	// Defaults to none.
	Except Law
	// Nodes is the number of nodes, at least 3. Defaults to 3.
	Nodes int
	// Steps is the number of steps of a history. Defaults to 14.
	Steps int
	// Histories is the number of histories per law. Defaults to 200.
	Histories int
	// Seed selects the histories. Defaults to 1.
	Seed uint64
}

func (c Config[T]) withDefaults() Config[T] {
	c.Nodes = cmp.Or(c.Nodes, 3)
	c.Steps = cmp.Or(c.Steps, 14)
	c.Histories = cmp.Or(c.Histories, 200)
	c.Seed = cmp.Or(c.Seed, 1)
	return c
}

func (c Config[T]) validate() error {
	var errs []error
	if c.Change == nil {
		errs = append(errs, errors.New("crdttest: Config.Change is required"))
	}
	if c.Nodes < 3 || c.Nodes > 26 {
		errs = append(errs, errors.New("crdttest: Config.Nodes must be 3 to 26"))
	}
	if c.Steps < 1 || c.Histories < 1 {
		errs = append(errs, errors.New("crdttest: Config.Steps and Config.Histories must be above 0"))
	}
	if c.ByValue && c.Read == nil {
		errs = append(errs, errors.New("crdttest: Config.ByValue needs Config.Read"))
	}
	if c.Except&Converges != 0 {
		errs = append(errs, errors.New("crdttest: Config.Except must not contain Converges"))
	}
	return errors.Join(errs...)
}
