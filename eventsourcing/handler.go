// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"reflect"
	"slices"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/hosting"
)

// Handler is a row of the table Type.Commands. On and OnNotice return one.
type Handler[S, E any] struct {
	name    string
	message reflect.Type
	entry   codec.Entry
	handle  func(e *entity[S, E], op *engine.Op, message any)
}

// On returns the row for commands of type M. The name identifies the command on the wire and must
// never change. A command with an empty name can't be sent to another node. Type describes the rules
// for handlers.
func On[S, E, R any, M Request[S, R]](name string, handler func(*S, *Context[S, E, R], M) Decision[S, E, R]) Handler[S, E] {
	h := newHandler[S, E, M](name)
	if handler == nil {
		return h
	}
	h.handle = func(e *entity[S, E], op *engine.Op, message any) {
		e.applyDecision(op, handler(e.instance.state, contextOf[R](e), message.(M)).decision) //nolint:errcheck,forcetypeassert // the table is keyed by M
	}
	return h
}

// OnNotice is On for notices of type M.
func OnNotice[S, E any, M Message[S]](name string, handler func(*S, *Context[S, E, None], M) Effect[S, E, None]) Handler[S, E] {
	h := newHandler[S, E, M](name)
	if handler == nil {
		return h
	}
	h.handle = func(e *entity[S, E], op *engine.Op, message any) {
		e.applyDecision(op, decision[S, E]{effect: handler(e.instance.state, contextOf[None](e), message.(M)).effect}) //nolint:errcheck,forcetypeassert // the table is keyed by M
	}
	return h
}

func newHandler[S, E, M any](name string) Handler[S, E] {
	h := Handler[S, E]{name: name, message: reflect.TypeFor[M]()}
	if name != "" {
		h.entry = codec.Name[M](name)
	}
	return h
}

// Commands returns the table of handlers for Type.Commands.
func Commands[S, E any](handlers ...Handler[S, E]) []Handler[S, E] { return handlers }

// SignalHandler is a row of the table Type.Signals. OnSignal returns one.
type SignalHandler[S, E any] struct {
	signal reflect.Type
	handle func(e *entity[S, E], op *engine.Op, signal any)
}

// OnSignal returns the row for signals of type G.
func OnSignal[S, E any, G Signal](handler func(*S, *Context[S, E, None], G) Effect[S, E, None]) SignalHandler[S, E] {
	h := SignalHandler[S, E]{signal: reflect.TypeFor[G]()}
	if handler == nil {
		return h
	}
	h.handle = func(e *entity[S, E], op *engine.Op, signal any) {
		e.applyDecision(op, decision[S, E]{effect: handler(e.instance.state, contextOf[None](e), signal.(G)).effect}) //nolint:errcheck,forcetypeassert // the table is keyed by G
	}
	return h
}

// Signals returns the table of handlers for Type.Signals.
func Signals[S, E any](handlers ...SignalHandler[S, E]) []SignalHandler[S, E] { return handlers }

// commandTable returns the handlers by the type of the message, and the registry of their wire names.
func (t *Type[S, E]) commandTable() (map[reflect.Type]*Handler[S, E], *codec.Registry, error) {
	var errs fielderror.Errors
	table := make(map[reflect.Type]*Handler[S, E], len(t.Commands))
	for i := range t.Commands {
		h := &t.Commands[i]
		if h.message.Kind() == reflect.Interface {
			errs.Addf("Type.Commands", "has a row for %v, which is an interface", h.message)
		}
		addRow(&errs, "Type.Commands", table, h.message, h, h.handle == nil)
	}
	registry := t.commandRegistry()
	errs.Add("Type.Commands", registry.Err())
	return table, registry, errs.Err(ErrInvalid)
}

func addRow[H any](errs *fielderror.Errors, field string, table map[reflect.Type]*H, key reflect.Type, row *H, noHandler bool) {
	if noHandler {
		errs.Addf(field, "has a nil handler of %v", key)
	}
	if table[key] != nil {
		errs.Addf(field, "has two handlers of %v", key)
	}
	table[key] = row
}

func (t *Type[S, E]) commandRegistry() *codec.Registry {
	entries := make([]codec.Entry, 0, len(t.Commands)+len(t.OldCommands))
	for i := range t.Commands {
		if e := t.Commands[i].entry; e != nil {
			entries = append(entries, e)
		}
	}
	return codec.Types(append(entries, t.OldCommands...)...).Using(t.CommandFormat)
}

// signalTable returns the handlers by the type of the signal, including the handlers of parts.
func (t *Type[S, E]) signalTable() (map[reflect.Type]*SignalHandler[S, E], error) {
	var errs fielderror.Errors
	table := make(map[reflect.Type]*SignalHandler[S, E], len(t.Signals))
	rows := slices.Clone(t.Signals)
	for _, p := range t.Parts {
		rows = append(rows, hosting.DefinitionOf(p).Signals...)
	}
	for i := range rows {
		addRow(&errs, "Type.Signals", table, rows[i].signal, &rows[i], rows[i].handle == nil)
	}
	return table, errs.Err(ErrInvalid)
}
