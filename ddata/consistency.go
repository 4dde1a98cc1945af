// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"errors"
	"fmt"

	"github.com/refold-io/refold/internal/replication"
)

// ReadLevel is the number of nodes whose values a read merges. The node itself is always one of
// them. The zero value is ReadLocal.
type ReadLevel struct {
	level  replication.Level
	repair bool
	oldest bool
}

// ReadLocal reads the value of this node without waiting.
func ReadLocal() ReadLevel { return ReadLevel{} }

// ReadFrom reads from n nodes, at least 2.
func ReadFrom(n int) ReadLevel { return ReadLevel{level: count(n)} }

// ReadMajority reads from more than half of the nodes. It sees all writes to a majority that
// completed before it began, as long as no nodes join or leave.
func ReadMajority() ReadLevel {
	return ReadLevel{level: replication.Level{Kind: replication.Majority}}
}

// ReadMajorityPlus reads from more nodes than a majority: that many more. Nodes that are leaving do
// not count.
func ReadMajorityPlus(more int) ReadLevel {
	return ReadLevel{level: replication.Level{Kind: replication.MajorityPlus, N: more}}
}

// ReadAll reads from all nodes except those that are leaving.
func ReadAll() ReadLevel { return ReadLevel{level: replication.Level{Kind: replication.All}} }

// AtLeast returns the level with a minimum number of nodes, limited by the size of the cluster. It
// is for small clusters, where a majority is only a few nodes. At levels other than majorities,
// requests fail with ErrInvalid.
func (l ReadLevel) AtLeast(n int) ReadLevel {
	l.level.MinCap = n
	return l
}

// RepairPeers returns the level with repair: before a read returns, it makes sure that as many
// nodes as it has read from hold the result, so that later reads see at least that. A register with
// a single writer is then linearizable if it is written and read at majorities. At ReadLocal,
// requests fail with ErrInvalid.
func (l ReadLevel) RepairPeers() ReadLevel {
	l.repair = true
	return l
}

// PreferOldest returns the level with the oldest nodes asked first.
func (l ReadLevel) PreferOldest() ReadLevel {
	l.oldest = true
	return l
}

// String returns a text such as "majority", or "majority plus 2 of at least 5, repairing peers,
// oldest first".
func (l ReadLevel) String() string {
	text := levelText(l.level)
	if l.repair {
		text += ", repairing peers"
	}
	return text + oldestText(l.oldest)
}

// check returns an error for combinations that the protocol does not check.
func (l ReadLevel) check() error {
	if l.repair && l.level.Kind == replication.Local {
		return errors.New("a local read has no peers to repair")
	}
	return checkLeast(l.level)
}

// WriteLevel is the number of nodes that must have a change before the call returns. The node
// itself is always one of them. The zero value is WriteLocal.
type WriteLevel struct {
	level  replication.Level
	oldest bool
}

// WriteLocal changes the value on this node. Other nodes receive the change soon afterwards.
func WriteLocal() WriteLevel { return WriteLevel{} }

// WriteTo writes to n nodes, at least 2.
func WriteTo(n int) WriteLevel { return WriteLevel{level: count(n)} }

// WriteMajority writes to more than half of the nodes.
func WriteMajority() WriteLevel {
	return WriteLevel{level: replication.Level{Kind: replication.Majority}}
}

// WriteMajorityPlus writes to more nodes than a majority: that many more. Nodes that are leaving do
// not count.
func WriteMajorityPlus(more int) WriteLevel {
	return WriteLevel{level: replication.Level{Kind: replication.MajorityPlus, N: more}}
}

// WriteAll writes to all nodes except those that are leaving.
func WriteAll() WriteLevel { return WriteLevel{level: replication.Level{Kind: replication.All}} }

// AtLeast is like ReadLevel.AtLeast.
func (l WriteLevel) AtLeast(n int) WriteLevel {
	l.level.MinCap = n
	return l
}

// PreferOldest is like ReadLevel.PreferOldest.
func (l WriteLevel) PreferOldest() WriteLevel {
	l.oldest = true
	return l
}

// String returns a text such as "majority", or "majority plus 2 of at least 5, oldest first".
func (l WriteLevel) String() string { return levelText(l.level) + oldestText(l.oldest) }

func (l WriteLevel) check() error { return checkLeast(l.level) }

func checkLeast(l replication.Level) error {
	if l.MinCap == 0 || l.Kind == replication.Majority || l.Kind == replication.MajorityPlus {
		return nil
	}
	return fmt.Errorf("AtLeast is for majorities, the level is %q", levelText(replication.Level{Kind: l.Kind, N: l.N}))
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
