// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"fmt"
	"reflect"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/fielderror"
)

// Handler is a row of the table Type.Commands. On and OnNotice return one.
type Handler[S, E any] struct{ row row }

// SignalHandler is a row of the table Type.Signals. OnSignal returns one.
type SignalHandler[S, E any] struct{ row row }

// row is a Handler or a SignalHandler without its type parameters.
type row struct {
	message reflect.Type
	entry   codec.Entry // nil if the message has no name on the wire
	handle  handleFunc  // nil if the handler is nil
}

type handleFunc func(e *entity, message any) decision

// On returns the row for commands of type M. The name identifies the command on the wire and must
// never change. A command with an empty name can't be sent to another node. Type describes the rules
// for handlers.
func On[S, E, R any, M Request[S, R]](name string, handler func(*S, *Context[S, E, R], M) Decision[S, E, R]) Handler[S, E] {
	r := newRow[M](name)
	if handler != nil {
		r.handle = func(e *entity, message any) decision {
			return handler(as[*S](e.instance.state), contextOf[S, E, R](e), as[M](message)).decision
		}
	}
	return Handler[S, E]{r}
}

// OnNotice is On for notices of type M.
func OnNotice[S, E any, M Message[S]](name string, handler func(*S, *Context[S, E, None], M) Effect[S, E, None]) Handler[S, E] {
	return Handler[S, E]{withoutReply(newRow[M](name), handler)}
}

// OnSignal returns the row for signals of type G.
func OnSignal[S, E any, G Signal](handler func(*S, *Context[S, E, None], G) Effect[S, E, None]) SignalHandler[S, E] {
	return SignalHandler[S, E]{withoutReply(newRow[G](""), handler)}
}

// newRow returns a row without a handler.
func newRow[M any](name string) row {
	r := row{message: reflect.TypeFor[M]()}
	if name != "" {
		r.entry = codec.Name[M](name)
	}
	return r
}

// withoutReply adds the handler of a notice or of a signal to a row.
func withoutReply[S, E, M any](r row, handler func(*S, *Context[S, E, None], M) Effect[S, E, None]) row {
	if handler != nil {
		r.handle = func(e *entity, message any) decision {
			return decision{effect: handler(as[*S](e.instance.state), contextOf[S, E, None](e), as[M](message)).effect}
		}
	}
	return r
}

// Commands returns the table of handlers for Type.Commands.
func Commands[S, E any](handlers ...Handler[S, E]) []Handler[S, E] { return handlers }

// Signals returns the table of handlers for Type.Signals.
func Signals[S, E any](handlers ...SignalHandler[S, E]) []SignalHandler[S, E] { return handlers }

// tableOf returns the handlers by the types of their messages.
func tableOf(errs *fielderror.Errors, field string, rows []row) map[reflect.Type]handleFunc {
	table := make(map[reflect.Type]handleFunc, len(rows))
	for _, r := range rows {
		if r.message.Kind() == reflect.Interface {
			errs.Addf(field, "has a row for %v, which is an interface", r.message)
		}
		if r.handle == nil {
			errs.Addf(field, "has a nil handler of %v", r.message)
		}
		if _, exists := table[r.message]; exists {
			errs.Addf(field, "has two handlers of %v", r.message)
		}
		table[r.message] = r.handle
	}
	return table
}

// remedy returns a hint if the handler of a command takes a pointer and the command is a value, or the
// reverse. Otherwise it returns "".
func (m *model) remedy(command any) string {
	t := reflect.TypeOf(command)
	switch {
	case m.commands[t] != nil:
	case t.Kind() == reflect.Pointer && m.commands[t.Elem()] != nil:
		return fmt.Sprintf(": Type.Commands has %v, so send the value, not a pointer", t.Elem())
	case m.commands[reflect.PointerTo(t)] != nil:
		return fmt.Sprintf(": Type.Commands has *%v, so send a pointer", t)
	}
	return ""
}

// commandRegistry returns the commands with their names on the wire.
func (t *Type[S, E]) commandRegistry() *codec.Registry {
	entries := make([]codec.Entry, 0, len(t.Commands)+len(t.OldCommands))
	for _, h := range t.Commands {
		if h.row.entry != nil {
			entries = append(entries, h.row.entry)
		}
	}
	return codec.Types(append(entries, t.OldCommands...)...).Using(t.CommandFormat)
}
