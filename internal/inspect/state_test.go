// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// deposits stores a history of one opening and n-1 deposits of their own number.
func deposits(tb testing.TB, j journal.Journal, id string, n int) {
	tb.Helper()
	events := codecOf(tb)
	batch := make([]journal.Event, 0, 1000)
	for i := 1; i <= n; i++ {
		var e any = deposited{i}
		if i == 1 {
			e = opened{"Ann"}
		}
		manifest, payload, err := events.Encode(e)
		if err != nil {
			tb.Fatal(err)
		}
		batch = append(batch, journal.Event{SequenceNr: uint64(i), Time: time.Unix(int64(i), 0).UTC(), Manifest: manifest, Payload: payload})
		if len(batch) == cap(batch) || i == n {
			for _, err := range j.Append(tb.Context(), []journal.Write{{ID: id, Writer: "w", Expect: uint64(i - len(batch)), Events: batch}}) {
				if err != nil {
					tb.Fatal(err)
				}
			}
			batch = batch[:0]
		}
	}
}

func codecOf(tb testing.TB) interface {
	Encode(v any) (string, []byte, error)
} {
	tb.Helper()
	return accountType().Events
}

// balanceAt is the balance after event n of deposits.
func balanceAt(n uint64) uint64 { return n*(n+1)/2 - 1 }

// counting counts the records that are read.
type counting struct {
	journal.Journal
	mu      sync.Mutex
	records int
}

func (c *counting) Unwrap() journal.Journal { return c.Journal }

func (c *counting) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		for e, err := range c.Journal.Replay(ctx, id, from, to) {
			c.mu.Lock()
			c.records++
			c.mu.Unlock()
			if !yield(e, err) {
				return
			}
		}
	}
}

func (c *counting) read() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.records
	c.records = 0
	return n
}

// The state at any number is that of the events up to it, whatever was requested before. After the
// first request, few events are read.
func TestStateAtAnyNumber(t *testing.T) {
	t.Parallel()
	db := must[store.DB](t)(inmem.Open())
	defer func() { _ = db.Close() }()
	const n = 20_000
	deposits(t, db.Journal(), "account|1", n)
	j := &counting{Journal: db.Journal()}
	server := must[*inspect.Server](t)(inspect.NewServer(inspect.Config{Store: store.Of(j, nil), Types: []inspect.Type{inspect.TypeOf(accountType())}}))
	defer func() { _ = server.Close(t.Context()) }()
	client := inspect.NewClient(server.AdminClient())
	for _, at := range []uint64{n, 1, 256, 257, 12_345, n - 1, 12_345, 0} {
		j.read()
		s := must[*inspect.StateView](t)(client.State(t.Context(), "", inspect.StateQuery{ID: "account|1", At: at}))
		if at == 0 {
			at = n
		}
		if want := fmt.Sprintf(`"Balance":%d,`, balanceAt(at)); !strings.Contains(string(s.JSON), want) || s.Nr != at || s.Highest != n {
			t.Errorf("at %d: got %s, number %d, want %s", at, s.JSON, s.Nr, want)
		}
		if !s.Time.Equal(time.Unix(int64(at), 0)) {
			t.Errorf("at %d: the time is %v, want that of the event", at, s.Time)
		}
		if read := j.read(); at != n && read > 600 {
			t.Errorf("at %d: %d records were read, want at most 600", at, read)
		}
	}
}

// A state without events, and the differences of states.
func TestDifference(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	deposits(t, f.db.Journal(), "account|1", 1000)
	f.append("account|2", 0, journal.Event{}, journal.Event{})
	get := func(q inspect.DifferenceQuery) string {
		t.Helper()
		if q.ID == "" {
			q.ID = "account|1"
		}
		d := must[*inspect.Difference](t)(f.client.Difference(t.Context(), "", q))
		var out []string
		for _, c := range d.Changes {
			out = append(out, fmt.Sprintf("%s %s→%s", c.Path, c.Before, c.After))
		}
		if d.Equal {
			out = append(out, "equal")
		}
		if d.Before.Nr != q.From || d.After.Nr != q.To || d.Before.JSON != nil {
			t.Errorf("%+v: the states are at %d and %d with JSON %s", q, d.Before.Nr, d.After.Nr, d.Before.JSON)
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct {
		q    inspect.DifferenceQuery
		want string
	}{
		{inspect.DifferenceQuery{From: 0, To: 1}, `Owner.Name ""→"Ann"`},
		{inspect.DifferenceQuery{From: 600, To: 601}, `Balance 180299→180900, Last[0] 599→600, Last[1] 600→601`},
		{inspect.DifferenceQuery{From: 601, To: 600}, `Balance 180900→180299, Last[0] 600→599, Last[1] 601→600`},
		{inspect.DifferenceQuery{From: 1000, To: 1000, Without: []uint64{1}}, `Owner.Name "Ann"→""`},
		{inspect.DifferenceQuery{From: 1000, To: 1000, Without: []uint64{500, 501}}, `Balance 500499→499498`},
		{inspect.DifferenceQuery{From: 700, To: 700}, `equal`},
		{inspect.DifferenceQuery{ID: "account|2", From: 1, To: 2}, `equal`},
	} {
		if got := get(c.q); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.q, got, c.want)
		}
	}
	s := must[*inspect.StateView](t)(f.client.State(t.Context(), "", inspect.StateQuery{ID: "account|1", At: 999, Without: []uint64{998}}))
	if want := fmt.Sprintf(`"Balance":%d,`, balanceAt(999)-998); !strings.Contains(string(s.JSON), want) {
		t.Errorf("without event 998: got %s, want %s", s.JSON, want)
	}
}

// A state starts from a kept snapshot, also if the events before it are deleted.
func TestStateFromSnapshot(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	deposits(t, f.db.Journal(), "account|1", 1000)
	save := func(nr uint64) {
		state := account{Balance: int(balanceAt(nr)) + 1_000_000} // a different state shows the use of the snapshot
		manifest, payload, err := eventsourcing.EncodeState(accountType(), &state)
		if err == nil {
			err = f.db.Snapshots().Save(t.Context(), snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "account|1", SequenceNr: nr, Time: time.Unix(int64(nr), 0).UTC()}, Manifest: manifest, Payload: payload})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	save(900)
	balance := func(at uint64) string {
		t.Helper()
		s, err := f.client.State(t.Context(), "", inspect.StateQuery{ID: "account|1", At: at})
		if err != nil {
			return "error"
		}
		i := strings.Index(string(s.JSON), `"Balance":`) + len(`"Balance":`)
		return string(s.JSON[i : i+strings.IndexByte(string(s.JSON[i:]), ',')])
	}
	for at, want := range map[uint64]uint64{899: balanceAt(899), 900: balanceAt(900) + 1_000_000, 1000: balanceAt(1000) + 1_000_000} {
		if got := balance(at); got != fmt.Sprint(want) {
			t.Errorf("at %d: the balance is %s, want %d", at, got, want)
		}
	}
	if err := f.db.Journal().DeleteTo(t.Context(), "account|1", 900); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[uint64]string{768: "error", 899: "error", 1000: fmt.Sprint(balanceAt(1000) + 1_000_000)} {
		if got := balance(at); got != want {
			t.Errorf("at %d after the deletion: %s, want %s", at, got, want)
		}
	}
}

// Without snapshots, a deletion of events also ends the use of checkpoints that contain their data.
func TestDeletionDropsCheckpoints(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	deposits(t, f.db.Journal(), "account|1", 1000)
	if _, err := f.client.State(t.Context(), "", inspect.StateQuery{ID: "account|1"}); err != nil {
		t.Fatal(err)
	}
	if err := f.db.Journal().DeleteTo(t.Context(), "account|1", 900); err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.State(t.Context(), "", inspect.StateQuery{ID: "account|1", At: 512}); err == nil {
		t.Error("the state at a checkpoint is shown, but its events are deleted")
	}
}

// A server with large states and many IDs keeps a bounded number of checkpoints, and the states
// stay right.
func TestCheckpointsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	long := strings.Repeat("x", 200<<10)
	for id := range 9 {
		pid := fmt.Sprintf("account|%d", id)
		deposits(t, f.db.Journal(), pid, 3000)
		manifest, payload, err := codecOf(t).Encode(opened{long})
		if err != nil {
			t.Fatal(err)
		}
		f.append(pid, 3000, journal.Event{Manifest: manifest, Payload: payload, Time: time.Unix(3001, 0).UTC()})
		more := make([]journal.Event, 9000)
		for i := range more {
			more[i] = journal.Event{Manifest: "deposited", Payload: []byte{0x81, 0xa6, 'A', 'm', 'o', 'u', 'n', 't', 1}, Time: time.Unix(3002, 0).UTC()}
		}
		f.append(pid, 3001, more...)
		for _, at := range []uint64{12_001, 7000, 3000, 12_000} {
			s := must[*inspect.StateView](t)(f.client.State(t.Context(), "", inspect.StateQuery{ID: pid, At: at}))
			want := balanceAt(3000) + at - 3001
			if at == 3000 {
				want = balanceAt(3000)
			}
			if !strings.Contains(string(s.JSON), fmt.Sprintf(`"Balance":%d,`, want)) {
				t.Errorf("%s at %d: got %.100s, want the balance %d", pid, at, s.JSON, want)
			}
		}
		if ids, total, largest := inspect.Checkpoints(f.server); total > 32<<20 || largest > 4<<20 || ids == 0 {
			t.Fatalf("%d IDs have %d bytes, the largest one %d; want at most 32 MiB and 4 MiB", ids, total, largest)
		}
	}
}

// The state in memory is compared with the replayed one. The request does not start the entity.
func TestLive(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.append("account|2", 0, journal.Event{Manifest: "deposited", Payload: []byte{0x80}})
	l := must[*inspect.Live](t)(f.client.Live(t.Context(), "", "account|2"))
	if l.Presence != "absent" || l.State != nil || f.local.Resident() != 0 {
		t.Errorf("got %+v with %d entities in memory, want an absent entity", l, f.local.Resident())
	}
	f.ask("1", open{Owner: "Ann"}, deposit{Amount: 5})
	l = must[*inspect.Live](t)(f.client.Live(t.Context(), "", "account|1"))
	if l.Presence != "running" || !l.Difference.Equal || l.State.Nr != 2 || !strings.Contains(string(l.State.JSON), `"Balance":5`) {
		t.Errorf("got %+v, want a running entity with equal states", l)
	}
	if err := f.local.Inspect(t.Context(), "1", func(a *account, _ uint64) { a.Balance = 6 }); err != nil { // a fault in the program
		t.Fatal(err)
	}
	l = must[*inspect.Live](t)(f.client.Live(t.Context(), "", "account|1"))
	if c := l.Difference.Changes; l.Difference.Equal || len(c) != 1 || c[0].Path != "Balance" || string(c[0].Before) != "5" || string(c[0].After) != "6" {
		t.Errorf("got %+v, want the difference of the balance", l.Difference)
	}
}

// Pending deliveries are listed from the entity in memory and from its events.
func TestPending(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.ask("1", pay{To: "x", Amount: 3}, pay{To: "y", Amount: 4})
	check := func(c *inspect.Client, live bool) {
		t.Helper()
		p := must[*inspect.PendingPage](t)(c.Pending(t.Context(), "", "account|1"))
		if p.Live != live || p.Total != 2 || len(p.Deliveries) != 2 {
			t.Fatalf("got %+v, want two deliveries, live: %v", p, live)
		}
		if d := p.Deliveries[1]; d.Part != "Payments" || d.Type != "shop" || d.ID != "y" || !strings.Contains(string(d.JSON), `"Amount":4`) || (d.Attempts > 0) != live || !strings.HasSuffix(d.Command, "payment") {
			t.Errorf("got %+v, want the delivery to shop y", d)
		}
	}
	check(f.client, true)
	other := must[*inspect.Server](t)(inspect.NewServer(inspect.Config{Store: f.db, Types: []inspect.Type{inspect.TypeOf(accountType())}}))
	defer func() { _ = other.Close(t.Context()) }()
	check(inspect.NewClient(other.AdminClient()), false)
}

// A verification runs in the background and counts by type.
func TestVerification(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *inspect.Config) { c.AllowActions = true })
	deposits(t, f.db.Journal(), "account|1", 10)
	f.append("loan|1", 0, journal.Event{Manifest: "x", Payload: []byte{0xc1}})
	if v := must[*inspect.Verification](t)(f.client.Verification(t.Context(), "")); v.Running || !v.Started.IsZero() {
		t.Errorf("got %+v before the start", v)
	}
	v := must[*inspect.Verification](t)(f.client.StartVerify(t.Context(), ""))
	for v.Running {
		v = must[*inspect.Verification](t)(f.client.Verification(t.Context(), ""))
	}
	if v.IDs != 2 || v.Records != 11 || v.ByType["account"] != (inspect.TypeCount{IDs: 1, Records: 10}) || len(v.Problems) != 1 || v.Problems[0].ID != "loan|1" || v.Failure != "" || v.Ended.IsZero() {
		t.Errorf("got %+v, want 2 IDs and one problem", v)
	}
}

// gated is a journal that lists two IDs, the second one after the gate is open. It closes first after
// the first ID has been handled.
type gated struct {
	journal.Journal
	first, gate chan struct{}
}

func (g gated) PersistenceIDs(ctx context.Context, _ string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		more := yield("account|1", nil)
		if close(g.first); !more {
			return
		}
		select {
		case <-g.gate:
			yield("loan|1", nil)
		case <-ctx.Done():
			yield("", context.Cause(ctx))
		}
	}
}

// A running verification reports the IDs that it has read.
func TestVerificationProgress(t *testing.T) {
	t.Parallel()
	db := must[store.DB](t)(inmem.Open())
	defer func() { _ = db.Close() }()
	deposits(t, db.Journal(), "account|1", 10)
	deposits(t, db.Journal(), "loan|1", 3)
	j := gated{db.Journal(), make(chan struct{}), make(chan struct{})}
	server := must[*inspect.Server](t)(inspect.NewServer(inspect.Config{Store: store.Of(j, nil), AllowActions: true}))
	defer func() { _ = server.Close(context.Background()) }()
	client := inspect.NewClient(server.AdminClient())
	must[*inspect.Verification](t)(client.StartVerify(t.Context(), ""))
	<-j.first
	v := must[*inspect.Verification](t)(client.Verification(t.Context(), ""))
	account := inspect.TypeCount{IDs: 1, Records: 10}
	if !v.Running || v.IDs != 1 || v.Records != 10 || !maps.Equal(v.ByType, map[string]inspect.TypeCount{"account": account}) || !v.Ended.IsZero() {
		t.Errorf("got %+v, want one of two IDs", v)
	}
	close(j.gate)
	for v.Running {
		v = must[*inspect.Verification](t)(client.Verification(t.Context(), ""))
	}
	if v.IDs != 2 || v.Records != 13 || v.ByType["account"] != account || v.ByType["loan"] != (inspect.TypeCount{IDs: 1, Records: 3}) || v.Ended.Before(v.Started) {
		t.Errorf("got %+v, want both IDs", v)
	}
}

// blocking is a journal whose list of IDs blocks until ctx ends.
type blocking struct {
	journal.Journal
	listing chan struct{}
}

func (b blocking) PersistenceIDs(ctx context.Context, _ string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		close(b.listing)
		<-ctx.Done()
		yield("", context.Cause(ctx))
	}
}

// One verification runs at a time. It can be stopped, and Close waits for its end.
func TestVerificationStops(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{true, false} {
		db := must[store.DB](t)(inmem.Open())
		defer func() { _ = db.Close() }()
		j := blocking{db.Journal(), make(chan struct{})}
		server := must[*inspect.Server](t)(inspect.NewServer(inspect.Config{Store: store.Of(j, nil), AllowActions: true}))
		client := inspect.NewClient(server.AdminClient())
		must[*inspect.Verification](t)(client.StartVerify(t.Context(), ""))
		<-j.listing
		if _, err := client.StartVerify(t.Context(), ""); !errors.Is(err, inspect.ErrRunning) {
			t.Errorf("a second start: %v, want ErrRunning", err)
		}
		if stop {
			v := must[*inspect.Verification](t)(client.StopVerify(t.Context(), ""))
			for v.Running {
				v = must[*inspect.Verification](t)(client.Verification(t.Context(), ""))
			}
			if !strings.Contains(v.Failure, "stopped") {
				t.Errorf("the failure is %q, want that it was stopped", v.Failure)
			}
		}
		if err := server.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Projections are listed with the event that failed. Actions need Config.AllowActions and the right
// to act.
func TestProjections(t *testing.T) {
	t.Parallel()
	db := must[store.DB](t)(inmem.Open())
	failing := true
	var mu sync.Mutex
	restarted := make(chan struct{}, 100)
	p := must[*projection.Projection[any]](t)(projection.New(projection.Config[any]{
		Name: "balances", Journal: db.Journal(), Events: accountType().Events,
		Handler: projection.AtLeastOnce[any]{Store: &projection.Memory{}, Handle: func(context.Context, projection.Envelope[any]) error {
			mu.Lock()
			defer mu.Unlock()
			if failing {
				return errors.New("the table is missing")
			}
			return nil
		}},
		Observer: projection.Observer{Restarted: func(projection.RestartInfo) { restarted <- struct{}{} }},
	}))
	f := newFixtureOn(t, db, func(c *inspect.Config) { c.AllowActions, c.Projections = true, []inspect.Projection{p} })
	f.ask("1", deposit{Amount: 1})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-restarted
	list := must[*inspect.Projections](t)(f.client.Projections(t.Context(), ""))
	for list.Projections[0].Failure == nil {
		list = must[*inspect.Projections](t)(f.client.Projections(t.Context(), ""))
	}
	v := list.Projections[0]
	if v.Name != "balances" || v.Failure.ID != "account|1" || v.Failure.Nr != 1 || !strings.Contains(v.Failure.Text, "the table is missing") || len(v.Workers) != 1 || v.Workers[0].Slices != "0-1023" || v.Rebuilds {
		t.Errorf("got %+v, want the failed event 1 of account|1", v)
	}
	list = must[*inspect.Projections](t)(f.client.PauseProjection(t.Context(), "", "balances"))
	if !list.Projections[0].Paused {
		t.Error("the projection is not paused")
	}
	list = must[*inspect.Projections](t)(f.client.ResumeProjection(t.Context(), "", "balances"))
	if list.Projections[0].Paused {
		t.Error("the projection is paused")
	}
	if _, err := f.client.RebuildProjection(t.Context(), "", "balances"); err == nil || !strings.Contains(err.Error(), "Clear") {
		t.Errorf("rebuild of a projection without Clear: %v, want an error", err)
	}
	if _, err := f.client.PauseProjection(t.Context(), "", "other"); !errors.Is(err, inspect.ErrNotFound) {
		t.Errorf("pause of an unknown projection: %v, want ErrNotFound", err)
	}
	answer := must[[]byte](t)(f.server.AdminClient().Ask(t.Context(), "projection", transport.AdminRead, "", []byte(`{"service":"projection","command":"pause","name":"balances"}`)))
	if !strings.Contains(string(answer), `"denied":true`) || p.Paused() {
		t.Errorf("an action with the right to read: %s, want that it is denied", answer)
	}
}

// The view of the process contains the entities, the waiting messages and the load.
func TestRuntime(t *testing.T) {
	t.Parallel()
	meter := &inspect.Meter{}
	rt := must[*eventsourcing.Runtime](t)(eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Observer: meter.Observer()}))
	defer func() { _ = rt.Close(context.Background()) }()
	local := must[*eventsourcing.Local[account, event]](t)(eventsourcing.Host(rt, accountType()))
	began := time.Now()
	server := must[*inspect.Server](t)(inspect.NewServer(inspect.Config{Runtime: rt, Meter: meter, Version: "v7"}))
	defer func() { _ = server.Close(t.Context()) }()
	client := inspect.NewClient(server.AdminClient())
	before := must[*inspect.RuntimeView](t)(client.Runtime(t.Context(), ""))
	for i := range 20 {
		must[int](t)(eventsourcing.Ask(t.Context(), local.Ref(fmt.Sprint(i%2)), deposit{Amount: 1}))
	}
	v := must[*inspect.RuntimeView](t)(client.Runtime(t.Context(), ""))
	if v.Version != "v7" || v.Goroutines == 0 || v.Heap == 0 || v.Memory < v.Heap || !v.Hosts || v.JournalBreakerOpen {
		t.Errorf("got %+v, want the figures of the process", v)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("the program has no build information")
	}
	if refold := inspect.RefoldVersion(info); v.Go != runtime.Version() || v.Refold != refold || refold != info.Main.Version || v.CPUs != runtime.GOMAXPROCS(0) {
		t.Errorf("got %+v, want the versions %s of Go and %q of Refold", v, runtime.Version(), refold)
	}
	if longest := time.Since(began); before.Uptime <= 0 || v.Uptime <= before.Uptime || v.Uptime > longest || !v.Started.Equal(before.Started) {
		t.Errorf("the process is up for %v, then for %v, want times that grow up to %v", before.Uptime, v.Uptime, longest)
	}
	if len(v.Entities) != 1 || v.Entities[0] != (inspect.EntityFigures{Type: "account", Resident: 2}) {
		t.Errorf("got %+v, want two accounts in memory and none waiting", v.Entities)
	}
	if l := v.Load; l.Commands != 20 || l.PerSecond <= 0 || l.P50 <= 0 || l.P99 < l.P50 {
		t.Errorf("got %+v, want 20 commands", l)
	}
}

// The version of Refold is that of the main module or of a dependency.
func TestRefoldVersion(t *testing.T) {
	t.Parallel()
	for want, info := range map[string]*debug.BuildInfo{
		"v1.2.3": {Main: debug.Module{Path: inspect.RefoldPath, Version: "v1.2.3"}},
		"v1.3.0": {Main: debug.Module{Path: "example.com/bank", Version: "v7.0.0"}, Deps: []*debug.Module{{Path: "example.com/other", Version: "v2.0.0"}, {Path: inspect.RefoldPath, Version: "v1.3.0"}}},
		"":       {Main: debug.Module{Path: "example.com/bank", Version: "v7.0.0"}},
	} {
		if got := inspect.RefoldVersion(info); got != want {
			t.Errorf("the version is %q, want %q", got, want)
		}
	}
}

// An open circuit breaker and waiting messages are visible.
func TestRuntimeShowsTrouble(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	rt := must[*eventsourcing.Runtime](t)(eventsourcing.Open(eventsourcing.Config{
		Store: store.Of(down{inmem.NewJournal(), gate}, nil), JournalBreaker: journal.BreakerConfig{MaxFailures: 1, ResetTimeout: time.Hour},
	}))
	local := must[*eventsourcing.Local[account, event]](t)(eventsourcing.Host(rt, accountType()))
	server := must[*inspect.Server](t)(inspect.NewServer(inspect.Config{Runtime: rt}))
	client := inspect.NewClient(server.AdminClient())
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		_ = server.Close(context.WithoutCancel(ctx))
		_ = rt.Close(ctx)
	}()
	defer cancel()
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for range 3 {
		asking.Go(func() { _, _ = eventsourcing.Ask(ctx, local.Ref("1"), deposit{Amount: 1}) })
	}
	for { // the entity recovers, which the journal blocks
		v := must[*inspect.RuntimeView](t)(client.Runtime(t.Context(), ""))
		if len(v.Entities) == 1 && v.Entities[0].Stash == 3 {
			break
		}
	}
	close(gate)
	for !must[*inspect.RuntimeView](t)(client.Runtime(t.Context(), "")).JournalBreakerOpen {
	}
}

// down is a journal that is unavailable from the opening of the gate on and blocks before.
type down struct {
	journal.Journal
	gate chan struct{}
}

func (d down) HighestSequenceNr(ctx context.Context, _ string) (uint64, error) {
	select {
	case <-d.gate:
		return 0, journal.ErrUnavailable
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// A quantile is at most 25 % above the latency.
func TestMeterQuantiles(t *testing.T) {
	t.Parallel()
	var m inspect.Meter
	m.Load()
	observe := m.Observer().Command
	for i := range 1000 {
		observe(eventsourcing.CommandInfo{Duration: time.Duration(i+1) * time.Microsecond})
	}
	l := m.Load()
	for _, c := range []struct{ got, want time.Duration }{{l.P50, 501 * time.Microsecond}, {l.P99, 991 * time.Microsecond}} {
		if c.got < c.want || c.got > c.want*5/4 {
			t.Errorf("the quantile is %v, want %v to %v", c.got, c.want, c.want*5/4)
		}
	}
	if l.Commands != 1000 {
		t.Errorf("%d commands, want 1000", l.Commands)
	}
}

// BenchmarkSlider requests the states of an entity with 100,000 events at random numbers, and
// reports the slowest of 20.
func BenchmarkSlider(b *testing.B) {
	db, err := inmem.Open()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	const n = 100_000
	deposits(b, db.Journal(), "account|1", n)
	server, err := inspect.NewServer(inspect.Config{Store: db, Types: []inspect.Type{inspect.TypeOf(accountType())}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Close(context.Background()) }()
	client := inspect.NewClient(server.AdminClient())
	began := time.Now()
	if _, err = client.State(b.Context(), "", inspect.StateQuery{ID: "account|1"}); err != nil {
		b.Fatal(err)
	}
	first := time.Since(began)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		began = time.Now()
		at := uint64(i)*2_654_435_761%n + 1
		if _, err = client.Difference(b.Context(), "", inspect.DifferenceQuery{ID: "account|1", From: at - 1, To: at}); err != nil {
			b.Fatal(err)
		}
		if _, err = client.State(b.Context(), "", inspect.StateQuery{ID: "account|1", At: at}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
	b.ReportMetric(float64(first.Microseconds())/1000, "first-ms")
}
