// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

// Reach is the reachability of a node as another one observes it.
type Reach uint8

// The numbers are those of the wire format and never change.
const (
	Reachable Reach = 1 + iota
	Unreachable
	// Terminated: the node is known to be dead. This is final.
	Terminated
)

func (r Reach) String() string {
	return enum.Name(r, "reach", "", "reachable", "unreachable", "terminated")
}

// Reachability is a table of observations. Each node writes only its own row and numbers its
// changes, so that the newer of two rows is known. The zero value means that all nodes are
// reachable. It is immutable.
type Reachability struct {
	// Observers are sorted by node.
	Observers []Observer
}

// Observer is the row of one observing node.
type Observer struct {
	Node identity.Node
	// Version counts the changes of the row.
	Version uint64
	// Records are sorted by subject. Subjects that were never unreachable have no record, and there
	// are no records while all subjects are reachable.
	Records []Record
}

// Record is an observation of a subject.
type Record struct {
	Subject identity.Node
	Reach   Reach
	// Version is the observer's version at the time of the observation.
	Version uint64
}

// Change returns the table with a new observation.
func (r Reachability) Change(observer, subject identity.Node, reach Reach) Reachability {
	i, known := r.find(observer)
	var old Observer
	if known {
		old = r.Observers[i]
	}
	at, found := old.find(subject)
	if found && (old.Records[at].Reach == reach || old.Records[at].Reach == Terminated) || !found && reach == Reachable {
		return r
	}
	changed := Observer{Node: observer, Version: old.Version + 1, Records: slices.Clone(old.Records)}
	record := Record{Subject: subject, Reach: reach, Version: changed.Version}
	if found {
		changed.Records[at] = record
	} else {
		changed.Records = slices.Insert(changed.Records, at, record)
	}
	if !slices.ContainsFunc(changed.Records, func(rec Record) bool { return rec.Reach != Reachable }) {
		changed.Records = nil
	}
	observers := slices.Clone(r.Observers)
	if known {
		observers[i] = changed
	} else {
		observers = slices.Insert(observers, i, changed)
	}
	return Reachability{observers}
}

// Merge returns for each allowed observer the row with the newer version. Rows are never mixed.
// Subjects that are not allowed are removed. nil allows all.
func (r Reachability) Merge(other Reachability, allowed func(identity.Node) bool) Reachability {
	var merged []Observer
	if SameSlice(r.Observers, other.Observers) && allowed == nil {
		return r
	}
	for x, y := range Pairs(r.Observers, other.Observers, func(a, b *Observer) int { return a.Node.Compare(b.Node) }) {
		newer := x
		if x == nil || y != nil && y.Version > x.Version {
			newer = y
		}
		if allowed == nil {
			merged = append(merged, *newer)
		} else if allowed(newer.Node) {
			merged = append(merged, newer.restrict(allowed))
		}
	}
	return Reachability{merged}
}

// Without returns the table without some nodes, as observers and as subjects.
func (r Reachability) Without(gone func(identity.Node) bool) Reachability {
	return r.Merge(Reachability{}, func(n identity.Node) bool { return !gone(n) })
}

// Of returns the reachability of a subject: Terminated if any observer reports Terminated, else
// Unreachable if any observer reports Unreachable, else Reachable. Observers for which ignored
// returns true do not count; nil ignores none.
func (r Reachability) Of(subject identity.Node, ignored func(observer identity.Node) bool) Reach {
	worst := Reachable
	for i := range r.Observers {
		o := &r.Observers[i]
		if len(o.Records) == 0 || ignored != nil && ignored(o.Node) {
			continue
		}
		if at, found := o.find(subject); found {
			worst = max(worst, o.Records[at].Reach)
		}
	}
	return worst
}

// By returns one observer's observation of a subject.
func (r Reachability) By(observer, subject identity.Node) Reach {
	if i, known := r.find(observer); known {
		if at, found := r.Observers[i].find(subject); found {
			return r.Observers[i].Records[at].Reach
		}
	}
	return Reachable
}

// EachUnreachable calls f with each record that is not Reachable, in the order of observers and
// subjects.
func (r Reachability) EachUnreachable(f func(observer identity.Node, rec Record)) {
	for _, o := range r.Observers {
		for _, rec := range o.Records {
			if rec.Reach != Reachable {
				f(o.Node, rec)
			}
		}
	}
}

// of calls f with each record of an observer that is not Reachable.
func (r Reachability) of(observer identity.Node, f func(Record)) {
	if i, known := r.find(observer); known {
		for _, rec := range r.Observers[i].Records {
			if rec.Reach != Reachable {
				f(rec)
			}
		}
	}
}

// AllReachable reports whether all observers find all subjects reachable.
func (r Reachability) AllReachable() bool {
	return !slices.ContainsFunc(r.Observers, func(o Observer) bool { return len(o.Records) > 0 })
}

func (r Reachability) find(observer identity.Node) (int, bool) {
	return slices.BinarySearchFunc(r.Observers, observer, func(o Observer, n identity.Node) int { return o.Node.Compare(n) })
}

func (o *Observer) find(subject identity.Node) (int, bool) {
	return slices.BinarySearchFunc(o.Records, subject, func(rec Record, n identity.Node) int { return rec.Subject.Compare(n) })
}

func (o Observer) restrict(allowed func(identity.Node) bool) Observer {
	foreign := func(rec Record) bool { return !allowed(rec.Subject) }
	if slices.ContainsFunc(o.Records, foreign) {
		o.Records = slices.DeleteFunc(slices.Clone(o.Records), foreign)
		if !slices.ContainsFunc(o.Records, func(rec Record) bool { return rec.Reach != Reachable }) {
			o.Records = nil
		}
	}
	return o
}
