// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot/snapshottest"
	"github.com/refold-io/refold/store"
)

// Config configures a Kit. The zero value holds the defaults.
type Config struct {
	// ID is the entity's own ID. Defaults to "1".
	ID string
	// Host are the options of its host. The pauses after a failure default to 1 ms.
	Host eventsourcing.HostOptions
	// Runtime configures the runtime. Its Store is ignored.
	Runtime eventsourcing.Config
	// AllowSharedMemory disables the check for memory that replies or commands share with the state.
	// It is for types that share immutable memory.
	AllowSharedMemory bool
	// AllowUnreturned disables the check for effects that a handler made and did not return.
	AllowUnreturned bool
}

// Kit runs one entity for a test. Its methods report errors to the test and must be called on the
// test's goroutine.
type Kit[S, E any] struct {
	t         testing.TB
	typ       eventsourcing.Type[S, E]
	cfg       Config
	pid       string
	codec     stateCodec[S, E]
	memory    *inmem.Journal
	journal   *journaltest.Faulty
	snapshots *snapshottest.Faulty
	runtime   *eventsourcing.Runtime
	entities  *eventsourcing.Local[S, E]

	mu         sync.Mutex
	unreturned []eventsourcing.UnreturnedInfo // not reported yet
	lossy      []string                       // problems that are not reported yet
}

// New returns a kit for an entity of a type. The kit is closed when the test ends.
func New[S, E any](t testing.TB, typ eventsourcing.Type[S, E]) *Kit[S, E] {
	t.Helper()
	return NewWithConfig(t, typ, Config{})
}

// NewWithConfig is New with a Config.
func NewWithConfig[S, E any](t testing.TB, typ eventsourcing.Type[S, E], cfg Config) *Kit[S, E] {
	t.Helper()
	cfg.ID = cmp.Or(cfg.ID, "1")
	cfg.Host.MinBackoff = cmp.Or(cfg.Host.MinBackoff, time.Millisecond)
	cfg.Host.MaxBackoff = cmp.Or(cfg.Host.MaxBackoff, cfg.Host.MinBackoff)
	pid, err := typ.PersistenceIDOf(cfg.ID)
	if err != nil {
		t.Fatalf("%v", err)
	}
	k := &Kit[S, E]{t: t, typ: typ, cfg: cfg, pid: pid}
	k.codec = newStateCodec(typ, cfg.ID)
	k.store()
	k.open()
	t.Cleanup(k.close)
	return k
}

func (k *Kit[S, E]) store() {
	k.memory = inmem.NewJournal()
	k.journal = journaltest.NewFaulty(k.memory)
	k.snapshots = snapshottest.NewFaulty(inmem.NewSnapshotStore())
}

func (k *Kit[S, E]) open() {
	k.t.Helper()
	cfg := k.cfg.Runtime
	cfg.Store = store.Of(k.journal, k.snapshots)
	if !k.cfg.AllowUnreturned {
		cfg.Observer = eventsourcing.Tee(cfg.Observer, eventsourcing.Observer{Unreturned: func(i eventsourcing.UnreturnedInfo) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.unreturned = append(k.unreturned, i)
		}})
	}
	var err error
	if k.runtime, err = eventsourcing.Open(cfg); err != nil {
		k.t.Fatalf("%v", err)
	}
	if k.entities, err = eventsourcing.HostWith(k.runtime, k.checked(), k.cfg.Host); err != nil {
		k.t.Fatalf("%v", err)
	}
}

// close stops the runtime and releases stalled calls of the journal.
func (k *Kit[S, E]) close() {
	if k.runtime == nil {
		return
	}
	k.journal.Release()
	if err := k.runtime.Close(context.Background()); err != nil {
		k.t.Errorf("close the runtime: %v", err)
	}
	k.runtime = nil
	k.report()
}

// Given stores events as if the entity had persisted them one by one, and restarts the entity. It
// reports an error unless each event survives its encoding.
func (k *Kit[S, E]) Given(events ...E) {
	k.t.Helper()
	k.close()
	ctx := context.Background()
	highest, err := k.memory.HighestSequenceNr(ctx, k.pid)
	if err != nil {
		k.t.Fatalf("%v", err)
	}
	for i, event := range events {
		manifest, payload, err := k.typ.Events.Encode(event)
		if err != nil {
			k.t.Fatalf("event %T: %v", event, err)
		}
		if problem := lossy("event", k.typ.Events, event, manifest, payload); problem != "" {
			k.t.Errorf("%s", problem)
		}
		w := journal.Write{ID: k.pid, Writer: "eventsourcingtest", Expect: highest + uint64(i)}
		w.Events = []journal.Event{{
			SequenceNr: w.Expect + 1, Time: time.Now().UTC().Truncate(time.Microsecond), //nolint:forbidigo // a history begins now
			Manifest: manifest, Payload: payload,
		}}
		if errs := k.memory.Append(ctx, []journal.Write{w}); errs != nil {
			k.t.Fatalf("store %T: %v", event, errs[0])
		}
	}
	k.open()
}

// Restart stops the entity and its runtime, and starts the entity in a new runtime with the same
// stores. It reports an error unless the state is the same.
func (k *Kit[S, E]) Restart() {
	k.t.Helper()
	before := k.live()
	k.close()
	k.open()
	k.same("after a restart the state is", k.live(), "before it was", before)
}

// Clear restarts the entity with empty stores, without injected faults.
func (k *Kit[S, E]) Clear() {
	k.t.Helper()
	k.close()
	k.store()
	k.open()
}

// Journal returns the journal, into which tests inject faults:
//
//	k.Journal().Inject(journaltest.Fault{Err: err})                   // the next write fails
//	k.Journal().Inject(journaltest.Fault{Do: journaltest.Reject})     // it is rejected
//	k.Journal().Inject(journaltest.Fault{Op: journaltest.OpReplay})   // the next recovery fails
func (k *Kit[S, E]) Journal() *journaltest.Faulty { return k.journal }

// Snapshots returns the snapshot store, into which tests inject faults.
func (k *Kit[S, E]) Snapshots() *snapshottest.Faulty { return k.snapshots }

// Ref returns the reference to the entity.
func (k *Kit[S, E]) Ref() eventsourcing.Ref[S] { return k.entities.Ref(k.cfg.ID) }

// Runtime returns the runtime, which is valid until the next Restart, Given or Clear.
func (k *Kit[S, E]) Runtime() *eventsourcing.Runtime { return k.runtime }

// Events returns all stored events.
func (k *Kit[S, E]) Events() []E {
	k.t.Helper()
	return k.eventsFrom(1)
}

func (k *Kit[S, E]) eventsFrom(from uint64) []E {
	k.t.Helper()
	var events []E
	for record, err := range k.memory.Replay(context.Background(), k.pid, from, journal.MaxSequenceNr) {
		if err != nil {
			k.t.Fatalf("replay: %v", err)
		}
		if record.IsFence() {
			continue
		}
		decoded, err := k.typ.Events.DecodeAppend(nil, record.Manifest, record.Payload)
		if err != nil {
			k.t.Fatalf("decode event %d: %v", record.SequenceNr, err)
		}
		for _, d := range decoded {
			event, ok := d.(E)
			if !ok {
				k.t.Fatalf("event %d decodes to %T, which is not an event of the type", record.SequenceNr, d)
			}
			events = append(events, event)
		}
	}
	return events
}

// State returns the state that the stored events lead to. If some events were deleted, it is computed
// from the newest snapshot. The caller owns it.
func (k *Kit[S, E]) State() *S {
	k.t.Helper()
	ctx := context.Background()
	f, err := eventsourcing.Fold(ctx, k.runtime, k.typ, k.cfg.ID, eventsourcing.FoldOptions[E]{DisableSnapshots: true})
	if errors.Is(err, journal.ErrHistoryGap) {
		f, err = eventsourcing.Fold(ctx, k.runtime, k.typ, k.cfg.ID, eventsourcing.FoldOptions[E]{})
	}
	if err != nil {
		k.t.Fatalf("%v", err)
	}
	return f.State
}

func (k *Kit[S, E]) String() string { return fmt.Sprintf("%s of a test", k.pid) }
