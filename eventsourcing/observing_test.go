// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// A lamp calls the functions that its commands contain.
type (
	lampCtx      = eventsourcing.Context[lamp, switched, int]
	lampDecision = eventsourcing.Decision[lamp, switched, int]
	wireCtx      = eventsourcing.Context[lamp, switched, eventsourcing.None]
	wireEffect   = eventsourcing.Effect[lamp, switched, eventsourcing.None]

	do struct {
		eventsourcing.Command[lamp, int]
		f func(*lampCtx, do) lampDecision
	}
	switched struct{ N int }

	lamp struct {
		Switched int
		Wire     wire // a part
	}
)

func (l *lamp) do(ctx *lampCtx, c do) lampDecision {
	if c.f == nil {
		return ctx.Unhandled()
	}
	return c.f(ctx, c)
}

func (l *lamp) wired(ctx *wireCtx, s wired) wireEffect { return s.f(ctx) }

func (l *lamp) apply(switched) { l.Switched++ }

// wire is a part that sends one command for each event.
type wire struct {
	hosting.NeedsPart

	to     string // the lamp at the other end
	panics string // the method that panics
	signal func(*wireCtx) wireEffect

	metadata [][]byte // of the events, as they were applied
	sent     int
}

// wired is the signal of a wire.
type wired struct {
	hosting.IsSignal

	f func(*wireCtx) wireEffect
}

func (w *wire) check(method string) {
	if method == w.panics {
		panic(method)
	}
}

func (w *wire) Field() any { return w }

func (w *wire) Attach(string, string) error { return nil }

func (w *wire) Applying(_ uint64, metadata []byte) { w.metadata = append(w.metadata, metadata) }

func (w *wire) Recovered(time.Time) hosting.Outgoing {
	w.check("Recovered")
	return w.send()
}

func (w *wire) Durable(uint64, time.Time) hosting.Outgoing {
	w.check("Durable")
	return w.send()
}

func (w *wire) Tick(time.Time) hosting.Outgoing { return hosting.Outgoing{} }

func (w *wire) Next() time.Time {
	w.check("Next")
	return time.Time{}
}

func (w *wire) HasWork() bool { return false }

func (w *wire) Admit(hosting.Signal) bool { return true }

func (*wire) Mark() {}

func (*wire) Check() error { return nil }

func (*wire) Replayed() error { return nil }

func (w *wire) send() (out hosting.Outgoing) {
	for ; w.to != "" && w.sent < len(w.metadata); w.sent++ {
		out.Sends = append(out.Sends, hosting.Send{
			Type: "lamp", ID: w.to, Command: persisting(1),
			Attempt: w.sent + 1, Metadata: w.metadata[w.sent],
			Answered: func(any, error) hosting.Signal {
				w.check("Answered")
				return wired{f: w.signal}
			},
		})
	}
	return out
}

// persisting is a command that persists n events as one unit.
func persisting(n int) do {
	return do{f: func(ctx *lampCtx, c do) lampDecision {
		return ctx.Persist(make([]switched, n)...).ReplyFunc(func() int { return n })
	}}
}

// lamps is a runtime with lamps.
type lamps struct {
	*eventsourcing.Local[lamp, switched]
	rt *eventsourcing.Runtime
}

func lampType(wires map[string]wire) eventsourcing.Type[lamp, switched] {
	return eventsourcing.Type[lamp, switched]{
		Name:     "lamp",
		New:      func(id string) *lamp { return &lamp{Wire: wires[id]} },
		Commands: eventsourcing.Commands(eventsourcing.On("", (*lamp).do)),
		Signals:  eventsourcing.Signals(eventsourcing.OnSignal((*lamp).wired)),
		Parts: []eventsourcing.Part[lamp, switched]{&hosting.PartDefinition[lamp, eventsourcing.SignalHandler[lamp, switched]]{
			Name: "Wire", Field: func(l *lamp) hosting.Part { return &l.Wire },
		}},
		Apply:  (*lamp).apply,
		Events: codec.Types(codec.Name[switched]("switched")),
	}
}

// lampStash is how many commands may wait in a lamp.
const lampStash = 8

func openLamps(tb testing.TB, cfg eventsourcing.Config, wires map[string]wire) *lamps {
	tb.Helper()
	if cfg.Store == nil {
		cfg.Store = store.Of(inmem.NewJournal(), nil)
	}
	rt, err := eventsourcing.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	l := &lamps{rt: rt}
	if l.Local, err = eventsourcing.HostWith(rt, lampType(wires), eventsourcing.HostOptions{StashCapacity: lampStash, MinBackoff: time.Millisecond}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.close(tb) })
	return l
}

func (l *lamps) close(tb testing.TB) {
	tb.Helper()
	if err := l.rt.Close(context.Background()); err != nil {
		tb.Error(err)
	}
}

// ask sends a command to a lamp and fails the test if the command fails.
func (l *lamps) ask(tb testing.TB, ctx context.Context, id string, c do) { //nolint:revive // tb first
	tb.Helper()
	if _, err := eventsourcing.Ask(ctx, l.Ref(id), c); err != nil {
		tb.Fatal(err)
	}
}

func (l *lamps) tell(tb testing.TB, ctx context.Context, id string, c do) { //nolint:revive // tb first
	tb.Helper()
	if err := eventsourcing.Tell(ctx, l.Ref(id), c); err != nil {
		tb.Fatal(err)
	}
}

// register is an observer that records the calls for commands.
type register struct {
	mu       sync.Mutex
	begun    []eventsourcing.CommandInfo
	commands []eventsourcing.CommandInfo
	failed   error
	came     chan struct{} // receives a value for each command
}

func newRegister() *register { return &register{came: make(chan struct{}, 1000)} }

type mark string

func marked(name string) context.Context {
	return context.WithValue(context.Background(), mark("name"), name)
}

func nameIn(ctx context.Context) string {
	name, _ := ctx.Value(mark("name")).(string)
	return name
}

// observer returns an observer. Its Begin adds "+" to the name in the context. Its metadata is the
// name.
func (r *register) observer() eventsourcing.Observer {
	return eventsourcing.Observer{
		Begin: func(i eventsourcing.CommandInfo) context.Context {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.begun = append(r.begun, i)
			return context.WithValue(i.Context, mark("name"), nameIn(i.Context)+"+")
		},
		Command: func(i eventsourcing.CommandInfo) {
			r.mu.Lock()
			r.commands = append(r.commands, i)
			r.mu.Unlock()
			r.came <- struct{}{}
		},
		Failure: func(_ string, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failed = errors.Join(r.failed, err)
		},
		Inject: func(ctx context.Context) []byte {
			if name := nameIn(ctx); name != "" {
				return []byte(name)
			}
			return nil
		},
		Extract: func(ctx context.Context, metadata []byte) context.Context {
			return context.WithValue(ctx, mark("name"), string(metadata))
		},
	}
}

// wait waits for n commands.
func (r *register) wait(n int) {
	for range n {
		<-r.came
	}
}

// all returns the commands so far.
func (r *register) all() []eventsourcing.CommandInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]eventsourcing.CommandInfo(nil), r.commands...)
}

// only returns the only command so far. It fails the test if there are none or several.
func (r *register) only(t *testing.T) eventsourcing.CommandInfo {
	t.Helper()
	all := r.all()
	if len(all) != 1 {
		t.Fatalf("%d commands, want 1", len(all))
	}
	return all[0]
}
