// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strconv"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// The entity that is spread over nodes: a tally that says on which node it is.
type (
	tallyCommand interface {
		eventsourcing.Target[tallyCommand]
	}

	// where is answered with the node.
	where struct {
		eventsourcing.For[tallyCommand, string]
	}
	// echo is answered with what it carries.
	echo struct {
		eventsourcing.For[tallyCommand, []byte]
		Note []byte
	}
	// peek is answered with the number, raise with the one after it, which is stored.
	peek struct {
		eventsourcing.For[tallyCommand, int64]
	}
	raise struct {
		eventsourcing.For[tallyCommand, int64]
		Note []byte
	}

	tally struct {
		node string
		n    int64
	}
)

// HandleCommand is part of eventsourcing.Aggregate.
func (t *tally) HandleCommand(ctx *eventsourcing.Context[tallyCommand, event], cmd tallyCommand) eventsourcing.Effect[tallyCommand, event] {
	switch m := cmd.(type) {
	case where:
		return ctx.Reply(m.With(t.node))
	case echo:
		return ctx.Reply(m.With(m.Note))
	case peek:
		return ctx.Reply(m.With(t.n))
	case raise:
		return ctx.Persist(added{N: 1, Note: m.Note}).Reply(m.Answer(func() int64 { return t.n }))
	}
	return ctx.Unhandled()
}

// ApplyEvent is part of eventsourcing.Aggregate.
func (t *tally) ApplyEvent(ev event) {
	if e, ok := ev.(added); ok {
		t.n += e.N
	}
}

// tallies is the type of the entity on a node.
func tallies(node string) eventsourcing.Type[tallyCommand, event] {
	return eventsourcing.Type[tallyCommand, event]{
		Name:     "tally",
		New:      func(string) eventsourcing.Aggregate[tallyCommand, event] { return &tally{node: node} },
		Events:   codec.Types(codec.Name[added]("added")),
		Commands: codec.Types(codec.Name[where]("where"), codec.Name[echo]("echo"), codec.Name[peek]("peek"), codec.Name[raise]("raise")),
	}
}

// tallyID is the ID of the entity with a number.
func tallyID(i int) string { return "tally-" + strconv.Itoa(i) }
