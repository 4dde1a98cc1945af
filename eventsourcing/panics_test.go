// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// logBuffer is a log that a test can read at any time.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), text)
}

// TestRefuseTypedNil checks that an error that holds a nil value counts as nil.
func TestRefuseTypedNil(t *testing.T) {
	t.Parallel()
	s := newScene(t).open()
	defer s.close()
	type list struct{ error }
	for _, err := range []error{nil, (*eventsourcing.Refusal)(nil), (*fs.PathError)(nil), (*list)(nil)} {
		if _, got := s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Refuse(err) }); !errors.Is(got, eventsourcing.ErrInvalid) {
			t.Errorf("Refuse of a nil %T: %v, want ErrInvalid", err, got)
		}
	}
}

// panickingObserver returns an observer whose functions panic, and the names of those that were
// called.
func panickingObserver() (o eventsourcing.Observer, called func() []string) {
	var mu sync.Mutex
	names := map[string]bool{}
	v := reflect.ValueOf(&o).Elem()
	for f, field := range v.Fields() {
		field.Set(reflect.MakeFunc(f.Type, func([]reflect.Value) []reflect.Value {
			mu.Lock()
			defer mu.Unlock()
			names[f.Name] = true
			panic("observer of " + f.Name)
		}))
	}
	return o, func() (all []string) {
		mu.Lock()
		defer mu.Unlock()
		for name := range names {
			all = append(all, name)
		}
		slices.Sort(all)
		return all
	}
}

// TestPanicInObserver checks that panics in observers have no effect on the entity.
func TestPanicInObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals()
		log := &logBuffer{}
		s.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		var called func() []string
		s.cfg.Observer, called = panickingObserver()
		s.typ.Snapshots.Every = 2
		s.opts.MinBackoff = time.Millisecond
		s.open()
		for _, want := range []string{"x", "x x"} {
			text, err := s.ask(addLines("x"))
			expect(t, text, err, want)
		}
		s.mustAsk(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			ctx.Persist(line{"lost"})
			return ctx.Reply("")
		})
		s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Stash() })
		s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Unhandled() })
		if _, err := s.ask(func(*actorCtx, *actor, act) actorDecision { panic("oops") }); err == nil {
			t.Error("the handler has panicked, want an error")
		}
		text, err := s.ask(addLines("y"))
		expect(t, text, err, "x x y")
		s.journal.Inject(journaltest.Fault{Do: journaltest.Late, WholeCall: true, AfterCalls: 1})
		_, _ = s.ask(addLines("z"))
		s.close()
		want := []string{
			"Begin", "Command", "Commit", "Dropped", "Durable", "Failure", "Fence", "Inject", "Recovery", "RecoveryStarted", "Snapshot", "Stashed", "Stopped", "Unreturned",
		}
		if got := called(); !slices.Equal(got, want) {
			t.Errorf("the test has called %v, want %v", got, want)
		}
		if n := log.count("observer panicked"); n < len(want) {
			t.Errorf("%d panics are logged, want at least %d", n, len(want))
		}
	})
}

// TestPanicInExtract checks that a part sends its commands although Observer.Extract panics or
// returns nil.
func TestPanicInExtract(t *testing.T) {
	t.Parallel()
	for name, extract := range map[string]func(context.Context, []byte) context.Context{
		"panic": func(context.Context, []byte) context.Context { panic("extract") },
		"nil":   func(context.Context, []byte) context.Context { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegister()
			o := r.observer()
			o.Extract = extract
			done := make(chan struct{})
			wires := map[string]wire{"a": {to: "b", signal: func(ctx *wireCtx) wireEffect {
				close(done)
				return ctx.Effect
			}}}
			l := openLamps(t, eventsourcing.Config{Observer: o}, wires)
			l.ask(t, marked("x"), "a", persisting(1))
			<-done
		})
	}
}

// TestPanicInPart checks that an entity continues after a panic of a part.
func TestPanicInPart(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Recovered", "Durable", "Next", "Answered"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			log := &logBuffer{}
			l := openLamps(t, eventsourcing.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}, map[string]wire{"a": {
				to: "b", panics: method, signal: func(ctx *wireCtx) wireEffect { return ctx.Effect },
			}})
			for range 3 {
				l.ask(t, context.Background(), "a", persisting(1))
			}
			if method != "Answered" && log.count("part panicked") == 0 {
				t.Error("the panic is not logged")
			}
		})
	}
}

// panickingStore is a snapshot store and a journal that panic in one method.
type panickingStore struct {
	snapshot.Store
	journal.Journal

	in atomic.Value // the name of the method
}

func (p *panickingStore) check(method string) {
	if p.in.Load() == any(method) {
		panic(method)
	}
}

// panickingSnapshots and panickingJournal are the two halves, which have methods with equal names.
type (
	panickingSnapshots struct{ *panickingStore }
	panickingJournal   struct{ *panickingStore }
)

func (p panickingSnapshots) Close() error { return p.Store.Close() }

func (p panickingSnapshots) Save(ctx context.Context, s snapshot.Snapshot) error {
	p.check("Save")
	return p.Store.Save(ctx, s)
}

func (p panickingSnapshots) Load(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
	p.check("Load")
	return p.Store.Load(ctx, id, c)
}

func (p panickingSnapshots) List(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
	p.check("List")
	return p.Store.List(ctx, id, c)
}

func (p panickingSnapshots) Delete(ctx context.Context, id string, c snapshot.Criteria) error {
	p.check("Delete")
	return p.Store.Delete(ctx, id, c)
}

func (p panickingJournal) Close() error { return p.Journal.Close() }

func (p panickingJournal) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	p.check("HighestSequenceNr")
	return p.Journal.HighestSequenceNr(ctx, id)
}

func (p panickingJournal) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	p.check("Replay")
	return p.Journal.Replay(ctx, id, from, to)
}

// TestPanicInStore checks that a panic of a store fails one operation.
func TestPanicInStore(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{
		"Save": "SnapshotFailed", "List": "EventsNotDeleted", "Delete": "SnapshotsNotDeleted",
		"Load": "", "HighestSequenceNr": "", "Replay": "",
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t).withSignals()
				p := &panickingStore{Store: s.snapshots, Journal: s.journal}
				s.cfg.Store = store.Of(panickingJournal{p}, panickingSnapshots{p})
				s.cfg.JournalBreaker = journal.BreakerConfig{MaxFailures: 1, OnChange: func(bool) { panic("OnChange") }}
				s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 2, Keep: 1, DeleteEvents: true}
				s.open()
				defer s.close()
				s.mustAsk(addLines("1"))
				p.in.Store(method)
				if want != "" {
					s.mustAsk(addLines("2"))
					synctest.Wait() // an entity that saves a snapshot does not save another one
					s.mustAsk(addLines("3"))
					s.mustAsk(addLines("4"))
					synctest.Wait()
					if got := s.signals(); !slices.Contains(got, want) {
						t.Errorf("the signals are %q, want %s", got, want)
					}
					return
				}
				s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.Stop() }))
				synctest.Wait()
				if _, err := s.ask(recall); !errors.Is(err, eventsourcing.ErrRecovery) || !strings.Contains(err.Error(), method) {
					t.Errorf("Ask: %v, want ErrRecovery and the panic", err)
				}
				p.in.Store("")
				time.Sleep(time.Minute)
				text, err := s.ask(recall)
				expect(t, text, err, "1")
			})
		})
	}
}

// TestPanicInProbe checks that an unknown outcome is settled although the first replay panics.
func TestPanicInProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &panickingStore{Journal: journaltest.NewFaulty(inmem.NewJournal())}
		s := newScene(t)
		s.cfg.Store = store.Of(panickingJournal{p}, nil)
		s.open()
		defer s.close()
		s.mustAsk(addLines("1"))
		p.in.Store("Replay")
		faulty, _ := p.Journal.(*journaltest.Faulty)
		faulty.Inject(journaltest.Fault{Do: journaltest.Store, WholeCall: true})
		asked := make(chan error, 1)
		go func() {
			_, err := s.ask(addLines("2"))
			asked <- err
		}()
		time.Sleep(time.Minute)
		p.in.Store("")
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case err := <-asked:
			if err != nil {
				t.Errorf("Ask: %v, want the outcome of the write, which is stored", err)
			}
		default:
			t.Error("the outcome is not settled")
		}
	})
}
