// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"fmt"
	"slices"
)

// Effect is what handling a command leads to. It is a value that a Context
// makes and that its methods complete; nothing happens before HandleCommand has
// returned it, and one that is not returned does nothing. The zero value is the
// effect of Context.None.
//
// Parts are carried out in the order in which they were added: units of events
// are stored, callbacks run when everything ahead of them is durable.
type Effect[C, E any] struct {
	events  []E // of the first unit, when it is a plain Persist
	value   any
	err     error
	decided decision
	control control
	made    uint16       // by how many methods of Context, see there
	parts   []part[C, E] // behind events
}

type decision uint8

const (
	undecided decision = iota
	replied
	refused
	silent
	delayed
)

type control uint8

const (
	stash control = 1 << iota
	unstashAll
	stop
	unhandled
)

// part is a unit of events, a callback, or a request to the runtime.
type part[C, E any] struct {
	events  []E
	call    func(*Context[C, E]) Effect[C, E]
	request any
	async   bool
}

// Reply answers the command. After events it is computed when they were
// applied, and leaves when they, and all before them, are durable.
func (e Effect[C, E]) Reply(a Answer[C]) Effect[C, E] {
	e.value, e.err, e.decided = a.value, nil, replied
	return e
}

// Refuse answers the command with an error, which must not be nil. Only a
// *Refusal, or an error that wraps one, keeps its identity for a caller on another
// node or for an outbox; anything else has code "internal" there.
func (e Effect[C, E]) Refuse(err error) Effect[C, E] {
	e.value, e.err, e.decided = nil, err, refused
	return e
}

// NoReply says that the command is never answered: an asker waits until its
// context ends. (An effect that says nothing about a reply answers ErrNoReply.)
func (e Effect[C, E]) NoReply() Effect[C, E] {
	e.value, e.err, e.decided = nil, nil, silent
	return e
}

// ReplyLater says that another command will answer, with Resolve and the Token
// of this one. An asker gets ErrNoReply if the entity stops before.
func (e Effect[C, E]) ReplyLater() Effect[C, E] {
	e.value, e.err, e.decided = nil, nil, delayed
	return e
}

// Resolve answers an earlier command that chose ReplyLater. A second answer, or
// one to nobody, is dropped.
func (e Effect[C, E]) Resolve(t Token[C], a Answer[C]) Effect[C, E] {
	return e.with(part[C, E]{request: resolve{call: t.call, value: a.value}})
}

// ResolveError answers an earlier command that chose ReplyLater with an error.
func (e Effect[C, E]) ResolveError(t Token[C], err error) Effect[C, E] {
	return e.with(part[C, E]{request: resolve{call: t.call, err: err}})
}

// Then runs f once everything ahead of it is durable, at most once, and never
// again in a recovery. No other command is handled before. f may have side
// effects, and may return a further effect, which queues behind what is
// pending; an empty one ends it.
func (e Effect[C, E]) Then(f func(*Context[C, E]) Effect[C, E]) Effect[C, E] {
	return e.with(part[C, E]{call: f, async: e.lastAsync()})
}

// And adds the parts of another effect behind those of this one. Units of
// events that are joined in this way go to the journal together but are not
// atomic together. If both decide about the reply, the second one counts.
func (e Effect[C, E]) And(next Effect[C, E]) Effect[C, E] {
	if len(next.events) > 0 {
		if len(e.events) == 0 && len(e.parts) == 0 {
			e.events = next.events
		} else {
			e = e.with(part[C, E]{events: next.events})
		}
	}
	for _, p := range next.parts {
		e = e.with(p)
	}
	if next.decided != undecided {
		e.value, e.err, e.decided = next.value, next.err, next.decided
	}
	e.control |= next.control
	e.made += next.made
	return e
}

// check returns what is wrong with an effect that can't be carried out.
func (e Effect[C, E]) check() error {
	if e.decided == refused && isNilError(e.err) {
		return fmt.Errorf("%w: Refuse needs an error", ErrInvalid)
	}
	if e.control&stash != 0 && (len(e.events) > 0 || len(e.parts) > 0) {
		return fmt.Errorf("%w: a command that is stashed is handled again, so its effect can hold nothing else", ErrInvalid)
	}
	return nil
}

func isNilError(err error) bool {
	r, ok := err.(*Refusal) //nolint:errorlint // the value itself
	return err == nil || ok && r == nil
}

// with adds a part to a copy: effects are values, and two that grew from one
// must not share it.
func (e Effect[C, E]) with(p part[C, E]) Effect[C, E] {
	e.parts = append(slices.Clip(e.parts), p)
	return e
}

// lastAsync reports whether the last unit is asynchronous: then what follows it
// is no barrier either.
func (e Effect[C, E]) lastAsync() bool {
	for _, p := range slices.Backward(e.parts) {
		if p.request == nil {
			return p.async
		}
	}
	return false
}
