// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	opened    struct{ Owner string }
	deposited struct{ Amount int }
	payment   struct {
		eventsourcing.Command[account, eventsourcing.Ack]
		delivery.Header

		Amount int
	}
	paid struct {
		To     string
		Amount int
	}
	account struct {
		Owner    struct{ Name string }
		Balance  int
		Last     []int
		Payments delivery.Outbox[payment]
	}
	event = any

	open struct {
		eventsourcing.Command[account, int]
		Owner string
	}
	deposit struct {
		eventsourcing.Command[account, int]
		Amount int
	}
	pay struct {
		eventsourcing.Command[account, int]
		To     string
		Amount int
	}
)

func accountType() eventsourcing.Type[account, event] {
	type ctx = eventsourcing.Context[account, event, int]
	type decision = eventsourcing.Decision[account, event, int]
	number := func(e eventsourcing.Effect[account, event, int]) decision {
		return e.ThenReply(func(c *ctx) decision { return c.Reply(int(c.SequenceNr())) })
	}
	return eventsourcing.Type[account, event]{
		Name:   "account",
		Events: codec.Types(codec.Name[opened]("opened"), codec.Name[deposited]("deposited"), codec.Name[paid]("paid")),
		Commands: eventsourcing.Commands(
			eventsourcing.On("open", func(_ *account, c *ctx, m open) decision { return number(c.Persist(opened{m.Owner})) }),
			eventsourcing.On("deposit", func(_ *account, c *ctx, m deposit) decision { return number(c.Persist(deposited{m.Amount})) }),
			eventsourcing.On("pay", func(_ *account, c *ctx, m pay) decision { return number(c.Persist(paid{m.To, m.Amount})) }),
		),
		Parts: eventsourcing.Parts(delivery.Sends("Payments", func(a *account) *delivery.Outbox[payment] { return &a.Payments },
			func(_ *account, c *eventsourcing.Context[account, event, eventsourcing.None], _ delivery.Answered[payment, eventsourcing.Ack]) eventsourcing.Effect[account, event, eventsourcing.None] {
				return eventsourcing.Effect[account, event, eventsourcing.None]{}
			})),
		Apply: func(a *account, e event) {
			switch e := e.(type) {
			case opened:
				a.Owner.Name = e.Owner
			case deposited:
				a.Balance += e.Amount
				a.Last = append(a.Last, e.Amount)
				a.Last = a.Last[max(0, len(a.Last)-2):]
			case paid:
				a.Balance -= e.Amount
				a.Payments.Deliver(eventsourcing.Address{Type: "shop", ID: e.To}, payment{Amount: e.Amount})
			}
		},
	}
}

// fixture is a program with a server.
type fixture struct {
	t      *testing.T
	db     store.DB
	rt     *eventsourcing.Runtime
	local  *eventsourcing.Local[account, event]
	server *inspect.Server
	client *inspect.Client
}

func newFixture(t *testing.T, change func(*inspect.Config)) *fixture {
	t.Helper()
	db, err := inmem.Open()
	if err != nil {
		t.Fatal(err)
	}
	return newFixtureOn(t, db, change)
}

func newFixtureOn(t *testing.T, db store.DB, change func(*inspect.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, db: db}
	var err error
	if f.rt, err = eventsourcing.Open(eventsourcing.Config{Store: db}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if closed := errors.Join(f.rt.Close(context.Background()), db.Close()); closed != nil {
			t.Error(closed)
		}
	})
	if f.local, err = eventsourcing.Host(f.rt, accountType()); err != nil {
		t.Fatal(err)
	}
	cfg := inspect.Config{Runtime: f.rt, Types: []inspect.Type{inspect.TypeOf(accountType())}}
	if change != nil {
		change(&cfg)
	}
	if f.server, err = inspect.NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	f.client = inspect.NewClient(f.server.AdminClient())
	return f
}

// ask sends commands to an account.
func (f *fixture) ask(id string, commands ...eventsourcing.Request[account, int]) {
	f.t.Helper()
	for _, c := range commands {
		if _, err := eventsourcing.Ask(f.t.Context(), f.local.Ref(id), c); err != nil {
			f.t.Fatal(err)
		}
	}
}

// append stores events without the runtime.
func (f *fixture) append(id string, expect uint64, events ...journal.Event) {
	f.t.Helper()
	for i := range events {
		events[i].SequenceNr = expect + uint64(i) + 1
		if events[i].Time.IsZero() {
			events[i].Time = time.Unix(int64(expect)+int64(i), 0).UTC()
		}
	}
	for _, err := range f.db.Journal().Append(f.t.Context(), []journal.Write{{ID: id, Writer: "w", Expect: expect, Events: events}}) {
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func numbers(p *inspect.EventPage) (list []uint64) {
	for i := range p.Events {
		list = append(list, p.Events[i].Nr)
	}
	return list
}

// Pages in both directions contain each event once.
func TestEventPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.ask("1", open{Owner: "Ann"})
	for i := range 9 {
		f.ask("1", deposit{Amount: i})
	}
	for _, backward := range []bool{false, true} {
		var all []uint64
		q := inspect.EventQuery{ID: "account|1", Backward: backward, Limit: 4}
		for {
			p := must[*inspect.EventPage](t)(f.client.Events(t.Context(), "", q))
			if len(p.Events) > 4 || p.Highest != 10 || p.First != 1 {
				t.Fatalf("got %d events, first %d, highest %d; want at most 4, 1, 10", len(p.Events), p.First, p.Highest)
			}
			all = append(all, numbers(p)...)
			if q.From = p.Next; p.Next == 0 {
				break
			}
		}
		want := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
		if backward {
			slices.Reverse(want)
		}
		if !slices.Equal(all, want) {
			t.Errorf("backward %v: got %v, want %v", backward, all, want)
		}
	}
	p := must[*inspect.EventPage](t)(f.client.Events(t.Context(), "", inspect.EventQuery{ID: "account|1", Limit: 1}))
	e := p.Events[0]
	if string(e.JSON) != `{"Owner":"Ann"}` || e.Manifest != "opened" || e.Time.IsZero() || e.Problem != "" {
		t.Errorf("got %+v, want the event opened as JSON", e)
	}
}

// Filters select by manifest, text and time.
func TestEventFilters(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	at := time.Unix(1000, 0).UTC()
	f.append("account|1", 0,
		journal.Event{Manifest: "opened+json", Payload: []byte(`{"Owner":"Ann"}`), Time: at},
		journal.Event{Manifest: "deposited+json", Payload: []byte(`{"Amount":7}`), Time: at.Add(time.Hour)},
		journal.Event{Manifest: "deposited+json", Payload: []byte(`{"Amount":8}`), Time: at.Add(2 * time.Hour)},
	)
	for name, c := range map[string]struct {
		q    inspect.EventQuery
		want []uint64
	}{
		"manifest": {inspect.EventQuery{Manifest: "deposited"}, []uint64{2, 3}},
		"text":     {inspect.EventQuery{Text: "ANN"}, []uint64{1}},
		"since":    {inspect.EventQuery{Since: at.Add(time.Hour)}, []uint64{2, 3}},
		"until":    {inspect.EventQuery{Until: at.Add(time.Hour)}, []uint64{1, 2}},
		"none":     {inspect.EventQuery{Text: "Bob"}, nil},
	} {
		c.q.ID = "account|1"
		p := must[*inspect.EventPage](t)(f.client.Events(t.Context(), "", c.q))
		if !slices.Equal(numbers(p), c.want) || p.Next != 0 {
			t.Errorf("%s: got %v, next %d; want %v, 0", name, numbers(p), p.Next, c.want)
		}
	}
}

// A filter that matches nothing examines a bounded number of records per request.
func TestFilterIsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	const total = 6000
	events := make([]journal.Event, total)
	for i := range events {
		events[i] = journal.Event{Manifest: "deposited", Payload: []byte{0x81, 0xa6, 'A', 'm', 'o', 'u', 'n', 't', 1}}
	}
	f.append("account|1", 0, events...)
	p := must[*inspect.EventPage](t)(f.client.Events(t.Context(), "", inspect.EventQuery{ID: "account|1", Text: "nothing", Backward: true}))
	if len(p.Events) != 0 || p.Next != total-5000 {
		t.Errorf("got %d events, next %d; want 0, %d", len(p.Events), p.Next, total-5000)
	}
}

// Damaged and unknown payloads are reported in their place.
func TestDamagedEventsAreShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.append("account|1", 0,
		journal.Event{Manifest: "opened", Payload: []byte{0x81, 0xa5, 'O'}},
		journal.Event{Manifest: "forgotten", Payload: []byte{0x80}},
		journal.Event{Manifest: "opened+gob", Payload: []byte("x")},
		journal.Event{Manifest: "opened+json", Payload: []byte("{")},
		journal.Event{},
		journal.Event{Manifest: "deposited", Payload: []byte{0x80}, Tags: []string{"a"}, Metadata: append([]byte{1, 0xab}, make([]byte, 24)...)},
	)
	p := must[*inspect.EventPage](t)(f.client.Events(t.Context(), "", inspect.EventQuery{ID: "account|1"}))
	if len(p.Events) != 6 {
		t.Fatalf("got %d events, want 6", len(p.Events))
	}
	for i, e := range p.Events[:4] {
		if e.Problem == "" || e.Manifest == "" {
			t.Errorf("event %d: %+v, want a problem and the manifest", i+1, e)
		}
	}
	if e := p.Events[4]; !e.Fence || e.Problem != "" {
		t.Errorf("got %+v, want a fence", e)
	}
	if e := p.Events[5]; e.Problem != "" || e.Tags[0] != "a" || !strings.HasPrefix(e.TraceID, "ab00") || e.SpanID == "" {
		t.Errorf("got %+v, want an event with a tag and a trace", e)
	}
	if _, err := f.client.State(t.Context(), "", inspect.StateQuery{ID: "account|1"}); err == nil || !strings.Contains(err.Error(), "event 1") {
		t.Errorf("State of a damaged history: %v, want an error that names event 1", err)
	}
}

// broken is a journal with an unreadable record.
type broken struct{ journal.Journal }

func (b broken) Unwrap() journal.Journal { return b.Journal }

func (b broken) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		for e, err := range b.Journal.Replay(ctx, id, from, to) {
			if err == nil && e.SequenceNr == 3 {
				yield(journal.Event{}, &journal.CorruptError{File: "x"})
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// The records around an unreadable one are shown.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for range 5 {
		f.ask("1", deposit{Amount: 1})
	}
	server := must[*inspect.Server](t)(inspect.NewServer(inspect.Config{Store: store.Of(broken{f.db.Journal()}, nil)}))
	defer func() { _ = server.Close(t.Context()) }()
	p := must[*inspect.EventPage](t)(inspect.NewClient(server.AdminClient()).Events(t.Context(), "", inspect.EventQuery{ID: "account|1", Backward: true}))
	if !slices.Equal(numbers(p), []uint64{5, 4, 3, 2, 1}) || p.Events[2].Problem == "" || p.Events[1].Problem != "" {
		t.Errorf("got %+v, want 5 records, the third one with a problem", p.Events)
	}
}

// Replies stay below the limit of a frame, whatever the payloads are.
func TestRepliesAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	hostile := strings.Repeat("<", 15<<10)
	var events []journal.Event
	for range 40 {
		events = append(events, journal.Event{Manifest: "opened+json", Payload: []byte(`"` + strings.Repeat("a", 14<<10) + `"`), Tags: slices.Repeat([]string{hostile[:1000]}, 30)})
		events = append(events, journal.Event{Manifest: "opened+json", Payload: []byte(`"` + hostile + `"`)})
	}
	events = append(events, journal.Event{Manifest: "opened+json", Payload: []byte(`"` + strings.Repeat("<", 1<<20) + `"`)})
	f.append("account|1", 0, events...)
	ask := func(request string) int {
		b := must[[]byte](t)(f.server.AdminClient().Ask(t.Context(), "inspect", transport.AdminRead, "", []byte(request)))
		return len(b)
	}
	const limit = 1 << 20
	for _, request := range []string{
		`{"service":"inspect","command":"events","events":{"id":"account|1","limit":1000000}}`,
		`{"service":"inspect","command":"events","events":{"id":"account|1","limit":1000000,"backward":true}}`,
		`{"service":"inspect","command":"event","id":"account|1","nr":81}`,
		`{"service":"inspect","command":"tail","tail":{"limit":1000000}}`,
	} {
		if n := ask(request); n > limit {
			t.Errorf("%s: the reply has %d bytes, want at most %d", request, n, limit)
		}
	}
	total, q := 0, inspect.EventQuery{ID: "account|1", Limit: 200}
	for q.From = 1; q.From > 0; {
		p := must[*inspect.EventPage](t)(f.client.Events(t.Context(), "", q))
		total += len(p.Events)
		q.From = p.Next
	}
	if total != len(events) {
		t.Errorf("the pages have %d events, want %d", total, len(events))
	}
}

// IDs are listed by type and prefix, page by page, without the records of Refold itself.
func TestIDs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for i := range 5 {
		f.append(fmt.Sprintf("account|a%d", i), 0, journal.Event{Manifest: "opened", Payload: []byte{0x80}})
	}
	f.append("account|b", 0, journal.Event{Manifest: "opened", Payload: []byte{0x80}})
	f.append("accounting|a", 0, journal.Event{Manifest: "opened", Payload: []byte{0x80}})
	f.append("refold.x|a", 0, journal.Event{Manifest: "opened", Payload: []byte{0x80}})
	list := func(q inspect.IDQuery) (ids []string) {
		for {
			p := must[*inspect.IDPage](t)(f.client.IDs(t.Context(), "", q))
			for _, v := range p.IDs {
				ids = append(ids, v.ID)
			}
			if q.After = p.Next; q.After == "" {
				return ids
			}
		}
	}
	for name, c := range map[string]struct {
		q    inspect.IDQuery
		want string
	}{
		"all":      {inspect.IDQuery{}, "accounting|a account|a0 account|a1 account|a2 account|a3 account|a4 account|b"},
		"pages":    {inspect.IDQuery{Limit: 2}, "accounting|a account|a0 account|a1 account|a2 account|a3 account|a4 account|b"},
		"type":     {inspect.IDQuery{Type: "account", Limit: 2}, "account|a0 account|a1 account|a2 account|a3 account|a4 account|b"},
		"prefix":   {inspect.IDQuery{Type: "account", Prefix: "a", Limit: 3}, "account|a0 account|a1 account|a2 account|a3 account|a4"},
		"exact":    {inspect.IDQuery{Prefix: "account|b"}, "account|b"},
		"none":     {inspect.IDQuery{Prefix: "zz"}, ""},
		"reserved": {inspect.IDQuery{Prefix: "refold."}, "refold.x|a"},
	} {
		if got := strings.Join(list(c.q), " "); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	p := must[*inspect.IDPage](t)(f.client.IDs(t.Context(), "", inspect.IDQuery{Prefix: "account|b"}))
	if v := p.IDs[0]; v.Type != "account" || v.EntityID != "b" || v.Highest != 1 {
		t.Errorf("got %+v, want the type, the ID and the highest number", v)
	}
}

// A type with adopted IDs is listed by the IDs of its entities.
func TestAdoptedIDs(t *testing.T) {
	t.Parallel()
	typ := accountType()
	typ.PersistenceID = func(id string) string { return "old-" + id }
	typ.EntityID = func(pid string) (string, bool) { return strings.CutPrefix(pid, "old-") }
	f := newFixture(t, func(c *inspect.Config) { c.Types = []inspect.Type{inspect.TypeOf(typ)} })
	for _, id := range []string{"old-x1", "old-x2", "old-y", "other"} {
		f.append(id, 0, journal.Event{Manifest: "opened", Payload: []byte{0x80}})
	}
	p := must[*inspect.IDPage](t)(f.client.IDs(t.Context(), "", inspect.IDQuery{Type: "account", Prefix: "x"}))
	if len(p.IDs) != 2 || p.IDs[1].ID != "old-x2" || p.IDs[1].EntityID != "x2" || p.Next != "" {
		t.Errorf("got %+v, want old-x1 and old-x2", p)
	}
}

// The tail continues after its offset and selects by ID.
func TestTail(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for i := range 10 {
		f.ask(fmt.Sprint(i%2), deposit{Amount: i})
	}
	var got []string
	q := inspect.TailQuery{Limit: 3}
	for {
		p := must[*inspect.TailPage](t)(f.client.Tail(t.Context(), "", q))
		for _, e := range p.Events {
			got = append(got, string(e.JSON))
		}
		if q.After = p.Next; !p.More {
			break
		}
	}
	if len(got) != 10 || got[9] != `{"Amount":9}` {
		t.Errorf("got %v, want 10 events in order", got)
	}
	end := must[*inspect.TailPage](t)(f.client.Tail(t.Context(), "", inspect.TailQuery{FromEnd: true}))
	f.ask("0", deposit{Amount: 99})
	f.ask("1", deposit{Amount: 100})
	p := must[*inspect.TailPage](t)(f.client.Tail(t.Context(), "", inspect.TailQuery{After: end.Next, ID: "account|1"}))
	if len(p.Events) != 1 || p.Events[0].ID != "account|1" || string(p.Events[0].JSON) != `{"Amount":100}` || p.Events[0].Offset == "" {
		t.Errorf("got %+v, want the event of account|1", p.Events)
	}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.ask("1", open{Owner: "Ann"}, deposit{Amount: 1})
	save := func(nr uint64, manifest string, payload []byte) {
		if err := f.db.Snapshots().Save(t.Context(), snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "account|1", SequenceNr: nr, Time: time.Unix(1, 0).UTC()}, Manifest: manifest, Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	state := account{Balance: 1}
	manifest, payload, err := eventsourcing.EncodeState(accountType(), &state)
	if err != nil {
		t.Fatal(err)
	}
	save(1, manifest, payload)
	save(2, "unknown", []byte{0xc1})
	p := must[*inspect.SnapshotPage](t)(f.client.Snapshots(t.Context(), "", "account|1"))
	if len(p.Snapshots) != 2 || p.Snapshots[0].Nr != 2 {
		t.Errorf("got %+v, want the snapshots 2 and 1", p)
	}
	s := must[*inspect.StateView](t)(f.client.Snapshot(t.Context(), "", "account|1", 1))
	if !strings.Contains(string(s.JSON), `"Balance":1`) || s.Highest != 2 {
		t.Errorf("got %+v, want the state", s)
	}
	if s = must[*inspect.StateView](t)(f.client.Snapshot(t.Context(), "", "account|1", 2)); s.Problem == "" {
		t.Errorf("got %+v, want a problem", s)
	}
	if _, err := f.client.Snapshot(t.Context(), "", "account|1", 3); !errors.Is(err, inspect.ErrNotFound) {
		t.Errorf("Snapshot(3): %v, want ErrNotFound", err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.ask("1", open{Owner: "Ann"})
	f.append("loan|1", 0, journal.Event{Manifest: "x", Payload: []byte{0x80}})
	ctx := t.Context()
	for name, c := range map[string]struct {
		err  func() error
		want error
	}{
		"no ID":   {func() error { _, err := f.client.Events(ctx, "", inspect.EventQuery{}); return err }, inspect.ErrInvalid},
		"no such": {func() error { _, err := f.client.Events(ctx, "", inspect.EventQuery{ID: "account|2"}); return err }, inspect.ErrNotFound},
		"event":   {func() error { _, err := f.client.Event(ctx, "", "account|1", 2); return err }, inspect.ErrNotFound},
		"type":    {func() error { _, err := f.client.State(ctx, "", inspect.StateQuery{ID: "loan|1"}); return err }, inspect.ErrNoType},
		"above": {func() error {
			_, err := f.client.State(ctx, "", inspect.StateQuery{ID: "account|1", At: 2})
			return err
		}, inspect.ErrInvalid},
		"without": {func() error {
			_, err := f.client.State(ctx, "", inspect.StateQuery{ID: "account|1", Without: make([]uint64, 101)})
			return err
		}, inspect.ErrInvalid},
		"zero": {func() error {
			_, err := f.client.State(ctx, "", inspect.StateQuery{ID: "account|1", Without: []uint64{0}})
			return err
		}, inspect.ErrInvalid},
		"prefix":  {func() error { _, err := f.client.IDs(ctx, "", inspect.IDQuery{Prefix: "\x00"}); return err }, inspect.ErrInvalid},
		"offset":  {func() error { _, err := f.client.Tail(ctx, "", inspect.TailQuery{After: "?"}); return err }, inspect.ErrInvalid},
		"project": {func() error { _, err := f.client.PauseProjection(ctx, "", "x"); return err }, transport.ErrDenied},
		"verify":  {func() error { _, err := f.client.StartVerify(ctx, ""); return err }, transport.ErrDenied},
		"canceled": {func() error {
			gone, cancel := context.WithCancel(ctx)
			cancel()
			_, err := f.client.State(gone, "", inspect.StateQuery{ID: "account|1"})
			return err
		}, nil},
	} {
		err := c.err()
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if err := f.server.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Types(ctx, ""); !errors.Is(err, inspect.ErrNoService) {
		t.Errorf("Types after Close: %v, want ErrNoService", err)
	}
	double := inspect.TypeOf(accountType())
	if _, err := inspect.NewServer(inspect.Config{Types: []inspect.Type{double, double}}); !errors.Is(err, inspect.ErrInvalid) || !strings.Contains(err.Error(), "Config.Types") {
		t.Errorf("NewServer with a type twice: %v, want ErrInvalid for Config.Types", err)
	}
}

// The redaction applies to events, states, differences, snapshots, deliveries and filters.
func TestRedaction(t *testing.T) {
	t.Parallel()
	const secret = "Ann-Secret"
	f := newFixture(t, func(c *inspect.Config) {
		c.Redact = func(f inspect.Field) bool {
			last := ""
			if len(f.Path) > 0 {
				last = f.Path[len(f.Path)-1]
			}
			if last == "Last" {
				panic("a failing function hides")
			}
			return last == "Owner" || f.Manifest == "delivery" && last == "Amount"
		}
	})
	f.ask("1", open{Owner: secret}, deposit{Amount: 41}, pay{To: "x", Amount: 17}, open{Owner: secret + "2"})
	f.append("account|2", 0, journal.Event{Manifest: "opened+json", Payload: []byte(`{"Other":[{"Owner":"` + secret + `","x":1.50}],"z":null,"a":true}`)})
	state := account{}
	state.Owner.Name = secret
	manifest, payload, err := eventsourcing.EncodeState(accountType(), &state)
	if err == nil {
		err = f.db.Snapshots().Save(t.Context(), snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "account|1", SequenceNr: 1, Time: time.Unix(1, 0).UTC()}, Manifest: manifest, Payload: payload})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{
		`{"service":"inspect","command":"events","events":{"id":"account|1"}}`,
		`{"service":"inspect","command":"event","id":"account|1","nr":1}`,
		`{"service":"inspect","command":"tail"}`,
		`{"service":"inspect","command":"state","state":{"id":"account|1"}}`,
		`{"service":"inspect","command":"difference","difference":{"id":"account|1","from":0,"to":1}}`,
		`{"service":"inspect","command":"difference","difference":{"id":"account|1","from":3,"to":4}}`,
		`{"service":"inspect","command":"snapshot","id":"account|1","nr":1}`,
		`{"service":"inspect","command":"live","id":"account|1"}`,
		`{"service":"inspect","command":"pending","id":"account|1"}`,
	} {
		reply := string(must[[]byte](t)(f.server.AdminClient().Ask(t.Context(), "inspect", transport.AdminRead, "", []byte(request))))
		if strings.Contains(reply, secret) || strings.Contains(reply, `"error"`) || !strings.Contains(reply, "(redacted)") || strings.Contains(reply, `"Amount":17,`) && strings.Contains(request, "pending") {
			t.Errorf("%s: got %s, want no secret", request, reply)
		}
		if strings.Contains(request, `"state"`) && !strings.Contains(reply, `"Last":"(redacted)"`) {
			t.Errorf("%s: got %s, want Last redacted, because the function panics", request, reply)
		}
	}
	p := must[*inspect.EventPage](t)(f.client.Events(t.Context(), "", inspect.EventQuery{ID: "account|1", Text: secret}))
	if len(p.Events) > 0 {
		t.Error("a filter finds a redacted text")
	}
	p = must[*inspect.EventPage](t)(f.client.Events(t.Context(), "", inspect.EventQuery{ID: "account|2"}))
	if got := string(p.Events[0].JSON); got != `{"Other":[{"Owner":"(redacted)","x":1.50}],"z":null,"a":true}` {
		t.Errorf("got %s, want the order and the other values unchanged", got)
	}
	d := must[*inspect.Difference](t)(f.client.Difference(t.Context(), "", inspect.DifferenceQuery{ID: "account|1", From: 3, To: 4}))
	if len(d.Changes) != 1 || d.Changes[0].Path != "Owner" || string(d.Changes[0].Before) != `"(redacted)"` {
		t.Errorf("got %+v, want a change of the redacted field", d.Changes)
	}
}

// Requests of other clients than this package's are decoded without a panic.
func FuzzRequest(f *testing.F) {
	db, err := inmem.Open()
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	server, err := inspect.NewServer(inspect.Config{Store: db, Types: []inspect.Type{inspect.TypeOf(accountType())}, AllowActions: true})
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = server.Close(context.Background()) }()
	for _, err := range db.Journal().Append(context.Background(), []journal.Write{{ID: "account|1", Events: []journal.Event{
		{SequenceNr: 1, Time: time.Unix(1, 0).UTC(), Manifest: "opened", Payload: []byte{0x80}}, {SequenceNr: 2, Time: time.Unix(1, 0).UTC(), Manifest: "gone", Payload: []byte{0xc1}},
	}}}) {
		if err != nil {
			f.Fatal(err)
		}
	}
	for _, seed := range []string{
		`{"service":"inspect","command":"events","events":{"id":"account|1","from":18446744073709551615,"backward":true,"limit":-1}}`,
		`{"service":"inspect","command":"events","events":{"id":"account|1","from":18446744073709551615}}`,
		`{"service":"inspect","command":"state","state":{"id":"account|1","at":1,"without":[1,18446744073709551615]}}`,
		`{"service":"inspect","command":"difference","difference":{"id":"account|1","from":1,"to":0}}`,
		`{"service":"inspect","command":"event","id":"account|1","nr":18446744073709551615}`,
		`{"service":"inspect","command":"snapshot","id":"account|1","nr":18446744073709551615}`,
		`{"service":"inspect","command":"ids","ids":{"type":"account","prefix":"\u0000","after":"|"}}`,
		`{"service":"inspect","command":"tail","tail":{"after":"-1","types":["a|b"],"id":"account|1"}}`,
		`{"service":"projection","command":"rebuild","name":"x"}`, `{"service":"runtime","command":"status"}`, `{"service":"inspect","command":"live"}`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		var to struct{ Service string }
		_ = json.Unmarshal(request, &to)
		service := cmp.Or(to.Service, "inspect")
		for _, right := range []transport.AdminRight{transport.AdminRead, transport.AdminAct} {
			answer, err := server.AdminClient().Ask(t.Context(), service, right, "", request)
			if errors.Is(err, transport.ErrHandlerFailed) {
				t.Fatal("the handler panicked")
			}
			if err == nil && !json.Valid(answer) || len(answer) > 1<<20 {
				t.Fatalf("invalid reply of %d bytes: %.100s", len(answer), answer)
			}
		}
	})
}
