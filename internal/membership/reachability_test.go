// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

const (
	reachable, unreachable, terminated = membership.Reachable, membership.Unreachable, membership.Terminated
)

func TestReachabilityRows(t *testing.T) {
	t.Parallel()
	a, b, c := node("a"), node("b"), node("c")
	var r membership.Reachability
	if got := r.Change(a, b, reachable); !reflect.DeepEqual(got, r) {
		t.Errorf("marking a node reachable without a row changed the rows: %v", got)
	}
	r = r.Change(a, b, unreachable)
	again := r.Change(a, b, unreachable)
	if again.Observers[0].Version != 1 {
		t.Errorf("repeating an observation changed the rows: %v", again)
	}
	r = r.Change(a, c, terminated)
	if got := r.Change(a, c, reachable).By(a, c); got != terminated {
		t.Errorf("the terminated subject became %v, want terminated", got)
	}
	if r.Of(b, nil) != unreachable || r.Of(c, nil) != terminated || r.Of(a, nil) != reachable {
		t.Errorf("the table is %v, want a reachable, b unreachable, c terminated", r)
	}
	if r.Of(b, func(observer identity.Node) bool { return observer == a }) != reachable {
		t.Error("an ignored observer was counted")
	}

	var s membership.Reachability
	s = s.Change(a, b, unreachable).Change(a, c, unreachable).Change(a, b, reachable)
	if s.AllReachable() || s.By(a, b) != reachable || s.Observers[0].Version != 3 {
		t.Errorf("after one of two subjects became reachable the table is %v, want version 3 with one unreachable subject", s)
	}
	s = s.Change(a, c, reachable)
	if !s.AllReachable() || len(s.Observers) != 1 || s.Observers[0].Version != 4 || s.Observers[0].Records != nil {
		t.Errorf("after all subjects became reachable: %v, want the version without records", s)
	}
}

func TestReachabilityOf(t *testing.T) {
	t.Parallel()
	a, b, c := node("a"), node("b"), node("c")
	var r membership.Reachability
	r = r.Change(a, c, unreachable).Change(b, c, unreachable)
	if r = r.Change(a, c, reachable); r.Of(c, nil) != unreachable {
		t.Error("c is reachable although b finds it unreachable")
	}
	if r = r.Change(b, c, reachable); r.Of(c, nil) != reachable {
		t.Error("c is unreachable although no observer finds it unreachable")
	}
}

// The merge of two tables from one history contains, for each observer, the newer row as a whole.
func TestMergeTakesNewerRows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}
		var full membership.Reachability
		history := []membership.Reachability{full}
		for range rapid.IntRange(0, 20).Draw(t, "changes") {
			observer, subject := node(rapid.SampledFrom(names).Draw(t, "observer")), node(rapid.SampledFrom(names).Draw(t, "subject"))
			full = full.Change(observer, subject, rapid.SampledFrom([]membership.Reach{reachable, unreachable, terminated}).Draw(t, "reach"))
			history = append(history, full)
		}
		x, y := rapid.SampledFrom(history).Draw(t, "x"), rapid.SampledFrom(history).Draw(t, "y")
		allNodes := func(identity.Node) bool { return true }
		merged := x.Merge(y, allNodes)
		if !reflect.DeepEqual(merged, y.Merge(x, allNodes)) || !reflect.DeepEqual(merged.Merge(x, allNodes), merged) {
			t.Errorf("the merge of %v and %v is %v, but not commutative and idempotent", x, y, merged)
		}
		later := x
		if len(y.Observers) > len(x.Observers) || versions(y) > versions(x) {
			later = y
		}
		if len(merged.Observers)+len(later.Observers) > 0 && !reflect.DeepEqual(merged, later) {
			t.Errorf("the merge with a later table is %[2]v, want %[1]v", later, merged)
		}
		without := merged.Without(func(n identity.Node) bool { return n.Name == "b" })
		without.EachUnreachable(func(observer identity.Node, rec membership.Record) {
			if observer.Name == "b" || rec.Subject.Name == "b" {
				t.Errorf("Without(b) still contains b: %v", without)
			}
		})
	})
}

func versions(r membership.Reachability) (sum uint64) {
	for _, o := range r.Observers {
		sum += o.Version
	}
	return sum
}

func TestRowsAreNeverMixed(t *testing.T) {
	t.Parallel()
	a, b, c := node("a"), node("b"), node("c")
	var old membership.Reachability
	old = old.Change(a, b, unreachable)
	now := old.Change(a, b, reachable) // without records, but newer
	now = now.Change(a, c, unreachable)
	merged := old.Merge(now, func(identity.Node) bool { return true })
	if merged.By(a, b) != reachable || merged.By(a, c) != unreachable {
		t.Errorf("the merged row is %v, want b reachable and c unreachable", merged)
	}
}
