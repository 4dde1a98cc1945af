// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"errors"
	"fmt"

	"github.com/refold-io/refold/internal/replication"
)

// ReadLevel says of how many nodes a read merges the values. The node itself is always one of
// them. The zero value is that of ReadLocal.
type ReadLevel struct {
	level  replication.Level
	repair bool
	oldest bool
}

// ReadLocal reads what this node has, at once.
func ReadLocal() ReadLevel { return ReadLevel{} }

// ReadFrom reads from n nodes, at least 2.
func ReadFrom(n int) ReadLevel { return ReadLevel{level: count(n)} }

// ReadMajority reads from more than half of the nodes. So it sees what was written to a
// majority before it began, as long as no nodes come or go.
func ReadMajority() ReadLevel {
	return ReadLevel{level: replication.Level{Kind: replication.Majority}}
}

// ReadMajorityPlus reads from so many more than half of the nodes. Of nodes that are about to
// leave it expects nothing.
func ReadMajorityPlus(more int) ReadLevel {
	return ReadLevel{level: replication.Level{Kind: replication.MajorityPlus, N: more}}
}

// ReadAll reads from all nodes but those that are about to leave.
func ReadAll() ReadLevel { return ReadLevel{level: replication.Level{Kind: replication.All}} }

// AtLeast returns a level of a majority with a least number of nodes, but never more than there are. It is for small
// clusters, of which a majority is few. With levels that are no majority, requests fail with ErrInvalid.
func (l ReadLevel) AtLeast(n int) ReadLevel {
	l.level.MinCap = n
	return l
}

// RepairPeers returns the level at which a read, before it returns, makes sure that as many
// nodes as it has read from have what it returns, so that later reads see at least that. A
// register that one node only writes is linearizable then, if it is written and read at
// majorities. At ReadLocal, which has no peers, requests fail with ErrInvalid.
func (l ReadLevel) RepairPeers() ReadLevel {
	l.repair = true
	return l
}

// PreferOldest returns the level that asks the oldest nodes first, as far as it asks any.
func (l ReadLevel) PreferOldest() ReadLevel {
	l.oldest = true
	return l
}

// String returns it as in "majority", or "majority plus 2 of at least 5, repairing peers, oldest first".
func (l ReadLevel) String() string {
	text := levelText(l.level)
	if l.repair {
		text += ", repairing peers"
	}
	return text + oldestText(l.oldest)
}

// check returns what is wrong with it that the protocol does not see.
func (l ReadLevel) check() error {
	if l.repair && l.level.Kind == replication.Local {
		return errors.New("a local read has no peers to repair")
	}
	return checkLeast(l.level)
}

// WriteLevel says how many nodes must have a change before the call returns. The node itself is
// always one of them. The zero value is that of WriteLocal.
type WriteLevel struct {
	level  replication.Level
	oldest bool
}

// WriteLocal changes what this node has. The others get it soon after.
func WriteLocal() WriteLevel { return WriteLevel{} }

// WriteTo writes to n nodes, at least 2.
func WriteTo(n int) WriteLevel { return WriteLevel{level: count(n)} }

// WriteMajority writes to more than half of the nodes.
func WriteMajority() WriteLevel {
	return WriteLevel{level: replication.Level{Kind: replication.Majority}}
}

// WriteMajorityPlus writes to so many more than half of the nodes. Of nodes that are about to
// leave it expects nothing.
func WriteMajorityPlus(more int) WriteLevel {
	return WriteLevel{level: replication.Level{Kind: replication.MajorityPlus, N: more}}
}

// WriteAll writes to all nodes but those that are about to leave.
func WriteAll() WriteLevel { return WriteLevel{level: replication.Level{Kind: replication.All}} }

// AtLeast is as ReadLevel.AtLeast.
func (l WriteLevel) AtLeast(n int) WriteLevel {
	l.level.MinCap = n
	return l
}

// PreferOldest is as ReadLevel.PreferOldest.
func (l WriteLevel) PreferOldest() WriteLevel {
	l.oldest = true
	return l
}

// String returns it as in "majority", or "majority plus 2 of at least 5, oldest first".
func (l WriteLevel) String() string { return levelText(l.level) + oldestText(l.oldest) }

func (l WriteLevel) check() error { return checkLeast(l.level) }

func checkLeast(l replication.Level) error {
	if l.MinCap == 0 || l.Kind == replication.Majority || l.Kind == replication.MajorityPlus {
		return nil
	}
	return fmt.Errorf("AtLeast is for majorities, and the level is %q", levelText(replication.Level{Kind: l.Kind, N: l.N}))
}

func oldestText(oldest bool) string {
	if oldest {
		return ", oldest first"
	}
	return ""
}

func count(n int) replication.Level { return replication.Level{Kind: replication.Count, N: n} }

func levelText(l replication.Level) string {
	text := l.Kind.String()
	switch l.Kind {
	case replication.Count:
		text = fmt.Sprintf("%d nodes", l.N)
	case replication.MajorityPlus:
		text = fmt.Sprintf("majority plus %d", l.N)
	case replication.Local, replication.Majority, replication.All:
	}
	if l.MinCap > 0 {
		text += fmt.Sprintf(" of at least %d", l.MinCap)
	}
	return text
}
