// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

// A running projection handles new events promptly.
func TestLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(3, 10)
		p := create(t, config(s, table))
		stop := start(t, p)
		for range 5 {
			synctest.Wait()
			wantSums(t, table.Rows(), s.sums)
			if got := p.Status(); got.State != projection.Running || !got.CaughtUp || got.Lag != 0 {
				t.Errorf("status %+v, want running and caught up", got)
			}
			s.fill(4, 7)
		}
		synctest.Wait()
		wantStopped(t, stop)
		wantSums(t, table.Rows(), s.sums)
		if got := p.Status(); got.State != projection.Stopped || got.Handled != 45 {
			t.Errorf("status %+v, want stopped and 45 handled", got)
		}
	})
}

// No event is lost between pages. The last event of a page may decode to one, no or several events.
// A page may also contain no matching event.
func TestPages(t *testing.T) {
	t.Parallel()
	s, table := newSource(t), &projectiontest.Table{}
	for i := range 3100 {
		switch {
		case i%1000 > 990 && i%2 == 0:
			s.encode(old(), "box|0", other{})
		case i%1000 > 990:
			s.encode(old(), "box|0", paidV1{Amounts: []int64{1, 2, 3}})
			s.sums["box|0"] += 6
		default:
			s.pay(fmt.Sprintf("box|%d", i%7), 1)
		}
		if i == 1500 {
			for range 2500 {
				s.pay("bag|0", 1)
			}
			delete(s.sums, "bag|0")
		}
	}
	for _, batch := range []int{1, 7, 1000, 5000} {
		cfg := config(s, table)
		cfg.Name = fmt.Sprint(batch)
		handler := sums(table)
		handler.Batch = batch
		cfg.Handler = handler
		catchUp(t, cfg)
		rows := table.Rows()
		wantSums(t, rows, s.sums)
		table = &projectiontest.Table{}
	}
	m := newModel()
	cfg := config(s, table)
	cfg.Handler = projection.AtLeastOnce[event]{Store: table, HandleBatch: func(ctx context.Context, events []projection.Envelope[event]) error {
		for _, e := range events {
			if err := m.handle(ctx, e); err != nil {
				return err
			}
		}
		return nil
	}}
	catchUp(t, cfg)
	wantSums(t, m.sums, s.sums)
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	at := time.Date(2026, time.March, 14, 15, 9, 26, 535_897_000, time.UTC)
	manifest, payload, err := old().Encode(paidV1{Amounts: []int64{3, 4}})
	if err != nil {
		t.Fatal(err)
	}
	e := journal.Event{SequenceNr: 1, Time: at, Manifest: manifest, Payload: payload, Tags: []string{"red"}, Metadata: []byte("meta")}
	if errs := s.Append(t.Context(), []journal.Write{{ID: "box|a|b", Writer: "w", Events: []journal.Event{e}}}); errs != nil {
		t.Fatal(errs)
	}
	var got []projection.Envelope[event]
	cfg := config(s, nil)
	cfg.Criteria = journal.Criteria{Tag: "red"}
	cfg.Handler = projection.AtLeastOnce[event]{Store: new(projection.Memory), Handle: func(_ context.Context, e projection.Envelope[event]) error {
		got = append(got, e)
		return nil
	}}
	catchUp(t, cfg)
	if len(got) != 2 {
		t.Fatalf("got %v, want two events", got)
	}
	for part, g := range got {
		if g.Event != (paid{N: int64(3 + part)}) || g.Part != part || g.ID != "box|a|b" || g.EntityID() != "a|b" || g.SequenceNr != 1 || !g.Time.Equal(at) ||
			g.Manifest != "paid" || !slices.Equal(g.Tags, []string{"red"}) || string(g.Metadata) != "meta" || g.Offset == "" {
			t.Errorf("the envelope of part %d is %+v", part, g)
		}
	}
	if (&projection.Envelope[event]{ID: "plain"}).EntityID() != "plain" {
		t.Error("EntityID of the persistence ID plain differs from plain")
	}
}

// The next page is read while the handler processes the current one.
func TestReadsAhead(t *testing.T) {
	t.Parallel()
	s, table := newSource(t), &projectiontest.Table{}
	s.fill(3, 2000)
	second := make(chan struct{})
	queries := 0
	s.query = func(context.Context, journal.Offset) error {
		if queries++; queries == 2 {
			close(second)
		}
		return nil
	}
	handler := sums(table)
	inner := handler.Handle
	handler.Handle = func(ctx context.Context, tx *projectiontest.Rows, events []projection.Envelope[event]) error {
		<-second // hangs unless the second page is read ahead
		return inner(ctx, tx, events)
	}
	cfg := config(s, table)
	cfg.Handler = handler
	catchUp(t, cfg)
	wantSums(t, table.Rows(), s.sums)
}

// saves records the time of each saved position and the number of events that were handled before.
// It returns a function that returns the records.
func saves(table *projectiontest.Table, m *model) func() []string {
	var log []string
	began := time.Now()
	table.Fault = func(_ context.Context, at projectiontest.Step) error {
		if at == projectiontest.AfterSave {
			log = append(log, fmt.Sprintf("%v:%d", time.Since(began), m.count()))
		}
		return nil
	}
	return func() []string { return log }
}

func TestAtLeastOnceSavePeriods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, m := newSource(t), &projectiontest.Table{}, newModel()
		log := saves(table, m)
		s.fill(3, 250)
		cfg := config(s, table)
		cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: m.handle}
		stop := start(t, create(t, cfg))
		time.Sleep(2 * time.Second)
		s.fill(1, 1)
		time.Sleep(time.Second)
		s.fill(1, 1)
		synctest.Wait()
		wantStopped(t, stop)
		want := []string{"0s:0", "0s:100", "0s:200", "500ms:250", "2.5s:251", "3s:252"}
		if !slices.Equal(log(), want) {
			t.Errorf("saved at %v, want %v", log(), want)
		}
		if end, _ := s.End(t.Context()); stored(t, table)[0].Offset != end {
			t.Errorf("the position is %v, want the end %v", stored(t, table), end)
		}
	})
}

// A batch is handled when it is full, or half a second after its first event.
func TestBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t)
		began := time.Now()
		var log []string
		cfg := config(s, nil)
		cfg.Handler = projection.AtLeastOnce[event]{Store: new(projection.Memory), HandleBatch: func(_ context.Context, events []projection.Envelope[event]) error {
			log = append(log, fmt.Sprintf("%v:%d", time.Since(began), len(events)))
			return nil
		}}
		stop := start(t, create(t, cfg))
		s.fill(2, 45)
		synctest.Wait()
		time.Sleep(400 * time.Millisecond)
		s.fill(2, 3)
		synctest.Wait()
		time.Sleep(time.Second)
		s.fill(2, 1)
		time.Sleep(300 * time.Millisecond)
		s.fill(2, 19)
		synctest.Wait()
		wantStopped(t, stop)
		want := []string{"0s:20", "0s:20", "500ms:8", "1.7s:20"}
		if !slices.Equal(log, want) {
			t.Errorf("handled batches %v, want %v", log, want)
		}
	})
}

// A position that moves without matching events is saved periodically and at the end.
func TestPositionMovesWithoutEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		stop := start(t, create(t, config(s, table)))
		s.pay("bag|0", 1)
		synctest.Wait()
		first, _ := s.End(t.Context())
		time.Sleep(6 * time.Second)
		if at := stored(t, table)[0].Offset; at != first {
			t.Errorf("the position is %q after 6 s, want %q", at, first)
		}
		s.pay("bag|0", 1)
		synctest.Wait()
		if at := stored(t, table)[0].Offset; at != first {
			t.Errorf("the position is %q before 5 s have passed, want %q", at, first)
		}
		wantStopped(t, stop)
		if end, _ := s.End(t.Context()); stored(t, table)[0].Offset != end {
			t.Errorf("the position is %v at the end, want %q", stored(t, table), end)
		}
	})
}

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, m := newSource(t), &projectiontest.Table{}, newModel()
		s.fill(1, 5)
		cfg := config(s, table)
		slow := make(chan struct{})
		cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: func(ctx context.Context, e projection.Envelope[event]) error {
			if e.SequenceNr == 3 {
				<-slow
			}
			return m.handle(ctx, e)
		}}
		p := create(t, cfg)
		stop := start(t, p)
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Pause(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Pause: %v, want a deadline error while a handler runs", err)
		}
		close(slow)
		if err := p.Pause(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if m.count() != 3 {
			t.Errorf("%d events were handled before the pause took effect, want 3", m.count())
		}
		time.Sleep(time.Minute)
		got := p.Status()
		if got.State != projection.Paused || got.Lag != 61*time.Second || got.CaughtUp {
			t.Errorf("status %+v, want paused and a lag of 61 s", got)
		}
		if at := stored(t, table)[0].Offset; at == "" {
			t.Error("the position before the pause is not saved")
		}
		wantStopped(t, stop) // Run can end during a pause

		stop = start(t, p)
		synctest.Wait()
		if m.count() != 3 {
			t.Errorf("%d events handled, want 3: the pause must remain in the next Run", m.count())
		}
		p.Resume()
		synctest.Wait()
		if m.count() != 5 || p.Status().State != projection.Running {
			t.Errorf("%d events handled, status %+v, want all 5 after Resume", m.count(), p.Status())
		}
		wantStopped(t, stop)
		for e, times := range m.seen {
			if times != 1 {
				t.Errorf("event %s was handled %d times, want once", e, times)
			}
		}
	})
}

func TestRunIsExclusive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := create(t, config(newSource(t), &projectiontest.Table{}))
		stop := start(t, p)
		synctest.Wait()
		if err := p.Run(t.Context()); !errors.Is(err, projection.ErrRunning) {
			t.Errorf("a second Run: %v, want ErrRunning", err)
		}
		wantStopped(t, stop)
		wantStopped(t, start(t, p))
	})
}

// An error that a restart cannot resolve ends Run.
func TestPermanentErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(1, 3)
		catchUp(t, config(s, table))
		cfg := config(s, table)
		cfg.Journal = inmem.NewJournal() // another journal, for which the position is invalid
		if err := create(t, cfg).Run(t.Context()); !errors.Is(err, journal.ErrOffset) {
			t.Errorf("Run on another journal: %v, want ErrOffset", err)
		}
		p := create(t, config(s, table))
		result := make(chan error, 1)
		go func() { result <- p.Run(t.Context()) }()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s.Journal = inmem.NewJournal()
		if err := <-result; !errors.Is(err, journal.ErrClosed) {
			t.Errorf("Run on a closed journal: %v, want ErrClosed", err)
		}
	})
}

func TestStatusOfFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(1, 2)
		cfg := config(s, table)
		var up atomic.Bool
		cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: func(context.Context, projection.Envelope[event]) error {
			if up.Load() {
				return nil
			}
			return errPlanted
		}}
		cfg.BackoffJitter = -1
		cfg.OnFailure = projection.Strategy{Retries: 1, Delay: 10 * time.Second}
		p := create(t, cfg)
		if got := p.Status(); got.State != projection.NotStarted || got.CaughtUp || got.LagUnknownSince.IsZero() {
			t.Errorf("status %+v before Run, want not started", got)
		}
		stop := start(t, p)
		time.Sleep(5 * time.Second)
		if got := p.Status(); got.State != projection.Retrying || !errors.Is(got.Workers[0].Err, errPlanted) || got.Lag != 5*time.Second {
			t.Errorf("status %+v after 5 s, want retrying with a lag of 5 s", got)
		}
		time.Sleep(6 * time.Second)
		if got := p.Status(); got.State != projection.Waiting || !errors.Is(got.Workers[0].Err, errPlanted) || got.Lag != 11*time.Second || got.Restarts != 1 {
			t.Errorf("status %+v after 11 s, want waiting with a lag of 11 s", got)
		}
		up.Store(true)
		time.Sleep(3 * time.Second)
		got := p.Status()
		if w := got.Workers[0]; got.State != projection.Running || !got.CaughtUp || got.Lag != 0 || w.Err != nil || w.Handled != 2 || w.LastEvent.IsZero() || w.Slices.Count != 1024 {
			t.Errorf("status %+v after 14 s, want running and caught up", got)
		}
		time.Sleep(time.Second)
		if end, _ := s.End(t.Context()); p.Status().Workers[0].Offset != end {
			t.Errorf("the position is %q, want %q", p.Status().Workers[0].Offset, end)
		}
		wantStopped(t, stop)

		table.Fault = func(context.Context, projectiontest.Step) error { return errPlanted }
		stop = start(t, p)
		synctest.Wait()
		if got := p.Status(); got.State != projection.Waiting || !errors.Is(got.Err, errPlanted) {
			t.Errorf("status %+v without a store, want waiting", got)
		}
		wantStopped(t, stop)
	})
}

func TestConfigMistakes(t *testing.T) {
	t.Parallel()
	s, store := newSource(t), new(projection.Memory)
	handle := func(context.Context, projection.Envelope[event]) error { return nil }
	group := func(context.Context, []projection.Envelope[event]) error { return nil }
	for name, change := range map[string]func(c *projection.Config[event]){
		"Name":                        func(c *projection.Config[event]) { c.Name = "" },
		"Name with control":           func(c *projection.Config[event]) { c.Name = "a\nb" },
		"Name too long":               func(c *projection.Config[event]) { c.Name = string(make([]byte, 256)) },
		"Journal":                     func(c *projection.Config[event]) { c.Journal = nil },
		"no queries":                  func(c *projection.Config[event]) { c.Journal = struct{ journal.Journal }{} },
		"Slices":                      func(c *projection.Config[event]) { c.Criteria.Slices = journal.Slices{Count: 1024} },
		"Events":                      func(c *projection.Config[event]) { c.Events = nil },
		"bad Events":                  func(c *projection.Config[event]) { c.Events = codec.Types(codec.Name[paid]("a b")) },
		"Handler":                     func(c *projection.Config[event]) { c.Handler = nil },
		"Workers":                     func(c *projection.Config[event]) { c.Workers = 3 },
		"negative Workers":            func(c *projection.Config[event]) { c.Workers = -1 },
		"Retries":                     func(c *projection.Config[event]) { c.OnFailure.Retries = -1 },
		"Delay":                       func(c *projection.Config[event]) { c.OnFailure.Delay = -1 },
		"MinBackoff":                  func(c *projection.Config[event]) { c.MinBackoff = -1 },
		"MaxBackoff":                  func(c *projection.Config[event]) { c.MaxBackoff = time.Second },
		"Jitter":                      func(c *projection.Config[event]) { c.BackoffJitter = 2 },
		"AtLeastOnce.Store":           func(c *projection.Config[event]) { c.Handler = projection.AtLeastOnce[event]{Handle: handle} },
		"AtLeastOnce without handler": func(c *projection.Config[event]) { c.Handler = projection.AtLeastOnce[event]{Store: store} },
		"AtLeastOnce with both handlers": func(c *projection.Config[event]) {
			c.Handler = projection.AtLeastOnce[event]{Store: store, Handle: handle, HandleBatch: group}
		},
		"AtLeastOnce.Batch": func(c *projection.Config[event]) {
			c.Handler = projection.AtLeastOnce[event]{Store: store, HandleBatch: group, Batch: -1}
		},
		"AtMostOnce.Store":  func(c *projection.Config[event]) { c.Handler = projection.AtMostOnce[event]{Handle: handle} },
		"AtMostOnce.Handle": func(c *projection.Config[event]) { c.Handler = projection.AtMostOnce[event]{Store: store} },
		"AtMostOnce with retries": func(c *projection.Config[event]) {
			c.OnFailure.Retries = 1
			c.Handler = projection.AtMostOnce[event]{Store: store, Handle: handle}
		},
		"ExactlyOnce.Store":  func(c *projection.Config[event]) { h := sums(nil); h.Store = nil; c.Handler = h },
		"ExactlyOnce.Handle": func(c *projection.Config[event]) { h := sums(nil); h.Handle = nil; c.Handler = h },
		"ExactlyOnce.Batch":  func(c *projection.Config[event]) { h := sums(nil); h.Batch = -1; c.Handler = h },
		"AtLeastOnce.SaveInterval": func(c *projection.Config[event]) {
			c.Handler = projection.AtLeastOnce[event]{Store: store, Handle: handle, SaveInterval: -1}
		},
	} {
		cfg := config(s, &projectiontest.Table{})
		change(&cfg)
		if _, err := projection.New(cfg); !errors.Is(err, projection.ErrInvalid) {
			t.Errorf("%s: New: %v, want ErrInvalid", name, err)
		}
	}
	cfg := config(s, &projectiontest.Table{})
	cfg.Journal = struct{ journal.Journal }{}
	if _, err := projection.New(cfg); !errors.Is(err, journal.ErrNoQueries) {
		t.Errorf("New without queries: %v, want ErrNoQueries", err)
	}
}

// A projection of all events does not receive the records of Refold itself, which its registry could
// not decode.
func TestOwnRecordsAreNotHandled(t *testing.T) {
	t.Parallel()
	s, table := newSource(t), &projectiontest.Table{}
	s.fill(3, 10)
	s.store("refold.sharding|coordinator|box", "refold.coordinator.event", []byte{1})
	s.fill(3, 10)
	cfg := config(s, table)
	cfg.Criteria = journal.Criteria{}
	p := create(t, cfg)
	if err := p.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSums(t, table.Rows(), s.sums)
	if got := p.Status(); got.Handled != 20 {
		t.Errorf("%d events were handled, want 20", got.Handled)
	}
}
