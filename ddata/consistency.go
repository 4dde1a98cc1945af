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
	nodes
	repair bool
}

type nodes struct {
	level  replication.Level
	oldest bool // the oldest nodes are asked first
}

// ReadLocal reads the value of this node without waiting.
func ReadLocal() ReadLevel { return ReadLevel{} }

// ReadFrom reads from n nodes, at least 2.
func ReadFrom(n int) ReadLevel { return ReadLevel{nodes: levelOf(replication.Count, n)} }

// ReadMajority reads from more than half of the nodes. Its result includes all writes to a majority
// that completed before the read began, as long as no nodes join or leave.
func ReadMajority() ReadLevel { return ReadLevel{nodes: levelOf(replication.Majority, 0)} }

// ReadMajorityPlus reads from a majority and from additional nodes. The parameter more is the
// number of additional nodes. Nodes that are leaving do not count.
func ReadMajorityPlus(more int) ReadLevel {
	return ReadLevel{nodes: levelOf(replication.MajorityPlus, more)}
}

// ReadAll reads from all nodes except those that are leaving.
func ReadAll() ReadLevel { return ReadLevel{nodes: levelOf(replication.All, 0)} }

// AtLeast returns the level with a minimum number of nodes, limited by the size of the cluster. Use
// it in small clusters, where a majority is only a few nodes. It applies only to majority levels:
// requests at other levels fail with ErrInvalid.
func (l ReadLevel) AtLeast(n int) ReadLevel {
	l.level.MinCap = n
	return l
}

// RepairPeers returns the level with repair. A read with repair returns only when as many nodes
// hold its result as took part in the read. Later reads therefore return at least this result. A
// register with a single writer is then linearizable if it is written and read at majorities. At
// ReadLocal, requests fail with ErrInvalid.
func (l ReadLevel) RepairPeers() ReadLevel {
	l.repair = true
	return l
}

// PreferOldest returns the level that contacts the oldest nodes first.
func (l ReadLevel) PreferOldest() ReadLevel {
	l.oldest = true
	return l
}

// String returns a text such as "majority", or "majority plus 2 of at least 5, repairing peers,
// oldest first".
func (l ReadLevel) String() string {
	if l.repair {
		return l.text(", repairing peers")
	}
	return l.text("")
}

// check returns an error for combinations that the protocol does not check.
func (l ReadLevel) check() error {
	if l.repair && l.level.Kind == replication.Local {
		return errors.New("a local read has no peers to repair")
	}
	return l.nodes.check()
}

// WriteLevel is the number of nodes that must have a change before the call returns. The node
// itself is always one of them. The zero value is WriteLocal.
type WriteLevel struct{ nodes }

// WriteLocal changes the value on this node. Other nodes receive the change soon afterwards.
func WriteLocal() WriteLevel { return WriteLevel{} }

// WriteTo writes to n nodes, at least 2.
func WriteTo(n int) WriteLevel { return WriteLevel{levelOf(replication.Count, n)} }

// WriteMajority writes to more than half of the nodes.
func WriteMajority() WriteLevel { return WriteLevel{levelOf(replication.Majority, 0)} }

// WriteMajorityPlus writes to a majority and to additional nodes. The parameter more is the number
// of additional nodes. Nodes that are leaving do not count.
func WriteMajorityPlus(more int) WriteLevel {
	return WriteLevel{levelOf(replication.MajorityPlus, more)}
}

// WriteAll writes to all nodes except those that are leaving.
func WriteAll() WriteLevel { return WriteLevel{levelOf(replication.All, 0)} }

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
func (l WriteLevel) String() string { return l.text("") }

// check returns an error for combinations that the protocol does not check.
func (n nodes) check() error {
	if l := n.level; l.MinCap != 0 && l.Kind != replication.Majority && l.Kind != replication.MajorityPlus {
		return fmt.Errorf("AtLeast requires a majority level, got %q", levelOf(l.Kind, l.N).text(""))
	}
	return nil
}

func levelOf(k replication.LevelKind, n int) nodes {
	return nodes{level: replication.Level{Kind: k, N: n}}
}

func (n nodes) text(addition string) string {
	text := n.level.Kind.String()
	switch n.level.Kind {
	case replication.Count:
		text = fmt.Sprintf("%d nodes", n.level.N)
	case replication.MajorityPlus:
		text = fmt.Sprintf("majority plus %d", n.level.N)
	case replication.Local, replication.Majority, replication.All:
	}
	if n.level.MinCap > 0 {
		text += fmt.Sprintf(" of at least %d", n.level.MinCap)
	}
	text += addition
	if n.oldest {
		text += ", oldest first"
	}
	return text
}
