// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"context"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// A reminder sends one note, and times out at a time of its state. A notebook keeps the notes.
type (
	reminder struct {
		Notes delivery.Outbox[note]
		Due   time.Time
		id    string
		late  chan<- string
	}
	notebook struct {
		Notes delivery.Inbox
		kept  chan<- string
	}
	// remind sends a note to the notebook To at once, and lets the reminder time out at Due.
	remind struct {
		eventsourcing.Command[reminder, eventsourcing.Ack]
		To  string
		Due time.Time
	}
	note struct {
		eventsourcing.Command[notebook, eventsourcing.Ack]
		delivery.Header
		Text string
	}

	reminderEvent interface{ isReminderEvent() }
	reminded      struct {
		To  string
		Due time.Time
	}
	confirmed struct{ Nr uint64 }
	expired   struct{}
	kept      struct{ Note delivery.Header }

	reminderCtx[R any] = eventsourcing.Context[reminder, reminderEvent, R]
	reminderEffect     = eventsourcing.Effect[reminder, reminderEvent, eventsourcing.None]
)

func (reminded) isReminderEvent()  {}
func (confirmed) isReminderEvent() {}
func (expired) isReminderEvent()   {}

func (r *reminder) remind(ctx *reminderCtx[eventsourcing.Ack], c remind) eventsourcing.Decision[reminder, reminderEvent, eventsourcing.Ack] {
	return ctx.Persist(reminded{c.To, c.Due}).Reply(eventsourcing.Ack{})
}

func (r *reminder) answered(ctx *reminderCtx[eventsourcing.None], a delivery.Answered[note, eventsourcing.Ack]) reminderEffect {
	return ctx.Persist(confirmed{a.Nr})
}

func (r *reminder) timeout(ctx *reminderCtx[eventsourcing.None], _ eventsourcing.StateTimeout) reminderEffect {
	return ctx.Persist(expired{}).Then(func(ctx *reminderCtx[eventsourcing.None]) reminderEffect {
		r.late <- r.id
		return ctx.Effect
	})
}

func (r *reminder) apply(event reminderEvent) {
	switch e := event.(type) {
	case reminded:
		if r.Due = e.Due; e.To != "" {
			r.Notes.Deliver(eventsourcing.Address{Type: "notebook", ID: e.To}, note{Text: r.id})
		}
	case confirmed:
		r.Notes.Confirm(e.Nr)
	case expired:
		r.Due = time.Time{}
	}
}

func reminderType(late chan<- string) eventsourcing.Type[reminder, reminderEvent] {
	return eventsourcing.Type[reminder, reminderEvent]{
		Name:     "reminder",
		New:      func(id string) *reminder { return &reminder{id: id, late: late} },
		Commands: eventsourcing.Commands(eventsourcing.On("remind", (*reminder).remind)),
		Parts: eventsourcing.Parts(delivery.SendsWith("Notes", func(r *reminder) *delivery.Outbox[note] { return &r.Notes },
			delivery.Options{Interval: 500 * time.Millisecond}, (*reminder).answered)),
		Signals:  eventsourcing.Signals(eventsourcing.OnSignal((*reminder).timeout)),
		Apply:    (*reminder).apply,
		Deadline: func(r *reminder) time.Time { return r.Due },
		Events:   codec.Types(codec.Name[reminded]("reminded"), codec.Name[confirmed]("confirmed"), codec.Name[expired]("expired")),
	}
}

func (n *notebook) keep(ctx *eventsourcing.Context[notebook, kept, eventsourcing.Ack], c note) eventsourcing.Decision[notebook, kept, eventsourcing.Ack] {
	return ctx.Persist(kept{c.Header}).Then(func(ctx *eventsourcing.Context[notebook, kept, eventsourcing.Ack]) eventsourcing.Effect[notebook, kept, eventsourcing.Ack] {
		n.kept <- c.Text
		return ctx.Effect
	}).Reply(eventsourcing.Ack{})
}

func notebookType(notes chan<- string) eventsourcing.Type[notebook, kept] {
	return eventsourcing.Type[notebook, kept]{
		Name:     "notebook",
		New:      func(string) *notebook { return &notebook{kept: notes} },
		Commands: eventsourcing.Commands(delivery.On("note", func(n *notebook) *delivery.Inbox { return &n.Notes }, (*notebook).keep)),
		Apply:    func(n *notebook, e kept) { n.Notes.Record(e.Note) },
		Events:   codec.Types(codec.Name[kept]("kept")),
	}
}

// receive returns the next text of a channel.
func receive(ctx context.Context, t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case text := <-from:
		return text
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
		return ""
	}
}

// An outbox reaches the entities of a connected runtime.
func TestOutboxOfConnectedRuntime(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		ctx, notes := within(t), make(chan string, 1)
		senders, receivers := openRuntime(t, db), openRuntime(t, db)
		if err := senders.Connect(receivers); err != nil {
			t.Fatal(err)
		}
		reminders, err := eventsourcing.Host(senders, reminderType(nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = eventsourcing.Host(receivers, notebookType(notes)); err != nil {
			t.Fatal(err)
		}
		if _, err = eventsourcing.Ask(ctx, reminders.Ref("milk"), remind{To: "home"}); err != nil {
			t.Fatal(err)
		}
		if got := receive(ctx, t, notes); got != "milk" {
			t.Errorf("the notebook keeps %q, want milk", got)
		}
	})
}

// An outbox reaches the entities of other nodes through a proxy of its node.
func TestOutboxThroughProxy(t *testing.T) {
	t.Parallel()
	db, err := inmem.Open()
	if err != nil {
		t.Fatal(err)
	}
	f, ctx, notes := startNodes(t, db, 0), within(t), make(chan string, 1)
	for _, role := range []string{"senders", "receivers", "receivers"} {
		i := f.add(func(cfg *cluster.Config) { cfg.Roles = []string{role} })
		if _, err = sharding.Host(ctx, f.nodes[i], f.runtimes[i], notebookType(notes), sharding.Options{Role: "receivers", Shards: 10}); err != nil {
			t.Fatal(err)
		}
	}
	reminders, err := eventsourcing.Host(f.runtimes[0], reminderType(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = eventsourcing.Ask(ctx, reminders.Ref("milk"), remind{To: "home"}); err != nil {
		t.Fatal(err)
	}
	if got := receive(ctx, t, notes); got != "milk" {
		t.Errorf("the notebook keeps %q, want milk", got)
	}
}
