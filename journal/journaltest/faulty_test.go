// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
)

var errOther = errors.New("network failure")

// write returns a write of n events that follow sequence number expect.
func write(id string, expect uint64, n int) journal.Write {
	w := journal.Write{ID: id, Writer: "w", Expect: expect}
	for i := range n {
		w.Events = append(w.Events, journal.Event{SequenceNr: expect + 1 + uint64(i), Manifest: "m"})
	}
	return w
}

// wantHighest compares the highest sequence numbers in the inner journal.
func wantHighest(t *testing.T, f *journaltest.Faulty, want map[string]uint64) {
	t.Helper()
	for id, n := range want {
		got, err := f.Unwrap().HighestSequenceNr(t.Context(), id)
		if err != nil || got != n {
			t.Errorf("the highest number of %q is %d, %v, want %d", id, got, err, n)
		}
	}
}

func kind(err error) string {
	for _, k := range []struct {
		name string
		is   error
	}{
		{"conflict", journal.ErrConflict}, {"rejected", journal.ErrRejected}, {"skipped", journal.ErrSkipped}, {"not sent", journal.ErrNotSent},
	} {
		if errors.Is(err, k.is) {
			return k.name
		}
	}
	if err == nil {
		return "stored"
	}
	return "unknown"
}

// TestFaultsOfAppend makes one call with five writes: two of a, two of b, and one of c.
func TestFaultsOfAppend(t *testing.T) {
	t.Parallel()
	onB := func(c journaltest.Call) bool { return c.Write.ID == "b" && c.Write.Expect == 0 }
	for _, c := range []struct {
		name     string
		fault    journaltest.Fault
		outcomes string
		a, b, c  uint64 // the highest sequence numbers when Append returns
		released uint64 // the highest sequence number of b after Release
	}{
		{"lose", journaltest.Fault{ID: "b"}, "stored stored unknown unknown stored", 2, 0, 1, 0},
		{"store", journaltest.Fault{ID: "b", Do: journaltest.Store}, "stored stored unknown unknown stored", 2, 2, 1, 2},
		{"late", journaltest.Fault{ID: "b", Do: journaltest.Late}, "stored stored unknown unknown stored", 2, 0, 1, 2},
		{"reject", journaltest.Fault{ID: "b", Do: journaltest.Reject}, "stored stored rejected skipped stored", 2, 0, 1, 0},
		{"conflict", journaltest.Fault{ID: "b", Do: journaltest.Conflict}, "stored stored conflict skipped stored", 2, 0, 1, 0},
		{"not sent", journaltest.Fault{ID: "b", Do: journaltest.NotSent}, "stored stored not sent skipped stored", 2, 0, 1, 0},
		{"by predicate", journaltest.Fault{When: onB}, "stored stored unknown unknown stored", 2, 0, 1, 0},
		{"the first that matches", journaltest.Fault{Do: journaltest.Reject}, "rejected skipped stored stored stored", 0, 2, 1, 2},
		{"after a stored write", journaltest.Fault{Do: journaltest.Reject, Skip: 1}, "stored rejected stored stored stored", 1, 2, 1, 2},
		{"skip and repeat", journaltest.Fault{Do: journaltest.Reject, Skip: 2, Times: 2}, "stored stored rejected skipped rejected", 2, 0, 0, 0},
		{"all", journaltest.Fault{Times: -1}, "unknown unknown unknown unknown unknown", 0, 0, 0, 0},
		{"whole call lost", journaltest.Fault{ID: "b", WholeCall: true}, "unknown unknown unknown unknown unknown", 0, 0, 0, 0},
		{"whole call stored", journaltest.Fault{ID: "b", WholeCall: true, Do: journaltest.Store}, "unknown unknown unknown unknown unknown", 2, 2, 1, 2},
		{"whole call rejected", journaltest.Fault{WholeCall: true, Do: journaltest.Reject}, "rejected skipped rejected skipped rejected", 0, 0, 0, 0},
		{"another method", journaltest.Fault{Op: journaltest.OpReplay}, "stored stored stored stored stored", 2, 2, 1, 2},
		{"another ID", journaltest.Fault{ID: "d"}, "stored stored stored stored stored", 2, 2, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := journaltest.NewFaulty(inmem.NewJournal())
			c.fault.Err = errOther
			f.Inject(c.fault)
			writes := []journal.Write{write("a", 0, 1), write("a", 1, 1), write("b", 0, 1), write("b", 1, 1), write("c", 0, 1)}
			var outcomes []string
			for _, err := range slots(f.Append(t.Context(), writes), writes) {
				outcomes = append(outcomes, kind(err))
				if kind(err) != "stored" && kind(err) != "skipped" && kind(err) != "conflict" && !errors.Is(err, errOther) {
					t.Errorf("the outcome is %v, want one that matches the error of the fault", err)
				}
			}
			if got := strings.Join(outcomes, " "); got != c.outcomes {
				t.Errorf("outcomes of Append: %s, want %s", got, c.outcomes)
			}
			wantHighest(t, f, map[string]uint64{"a": c.a, "b": c.b, "c": c.c})
			clear(writes)
			f.Release()
			wantHighest(t, f, map[string]uint64{"a": c.a, "b": c.released, "c": c.c})
		})
	}
}

func TestFaultDefaultsAndCounts(t *testing.T) {
	t.Parallel()
	f := journaltest.NewFaulty(inmem.NewJournal())
	i := f.Inject(journaltest.Fault{})
	select {
	case <-i.Struck():
		t.Error("the channel of Struck is closed before any call")
	default:
	}
	if err := only(f.Append(t.Context(), []journal.Write{write("a", 0, 2)})); !errors.Is(err, journaltest.ErrInjected) || journal.NotStored(err) {
		t.Errorf("Append: %v, want an unknown outcome that matches ErrInjected", err)
	}
	<-i.Struck()
	if errs := f.Append(t.Context(), []journal.Write{write("a", 0, 2), write("b", 0, 1)}); errs != nil {
		t.Errorf("Append after the only fault: %v, want nil", errs)
	}
	if f.Calls(journaltest.OpAppend) != 2 || f.Writes() != 3 {
		t.Errorf("%d calls and %d writes, want 2 and 3", f.Calls(journaltest.OpAppend), f.Writes())
	}
	if _, err := all(f.Replay(t.Context(), "a", 1, 9)); err != nil {
		t.Error(err)
	}
	_ = f.Replay(t.Context(), "a", 1, 9) // no loop ranges over it
	_, _ = f.HighestSequenceNr(t.Context(), "a")
	_ = f.DeleteTo(t.Context(), "a", 1)
	for _, op := range []journaltest.Op{journaltest.OpReplay, journaltest.OpHighest, journaltest.OpDelete} {
		if n := f.Calls(op); n != 1 {
			t.Errorf("%d calls of method %d, want 1", n, op)
		}
	}
}

// TestLateConflicts stores another write before a late write is stored. The late write must then be
// dropped.
func TestLateConflicts(t *testing.T) {
	t.Parallel()
	f := journaltest.NewFaulty(inmem.NewJournal())
	late := f.Inject(journaltest.Fault{Do: journaltest.Late, Times: 2})
	for _, id := range []string{"a", "b"} {
		if err := only(f.Append(t.Context(), []journal.Write{write(id, 0, 2)})); kind(err) != "unknown" {
			t.Errorf("Append: %v, want an unknown outcome", err)
		}
	}
	if errs := f.Append(t.Context(), []journal.Write{write("a", 0, 1)}); errs != nil {
		t.Errorf("Append of the fence: %v, want nil", errs)
	}
	late.Release()
	wantHighest(t, f, map[string]uint64{"a": 1, "b": 2})
	late.Release() // no late write is left
	if n := late.Landed(); n != 1 {
		t.Errorf("%d late writes have landed, want 1", n)
	}
}

// TestLateAfterCalls checks that AfterCalls stores a late write without a release, before the
// second call after it.
func TestLateAfterCalls(t *testing.T) {
	t.Parallel()
	f := journaltest.NewFaulty(inmem.NewJournal())
	f.Inject(journaltest.Fault{Do: journaltest.Late, AfterCalls: 2})
	f.Append(t.Context(), []journal.Write{write("a", 0, 2)})
	for _, want := range []uint64{0, 2} {
		if n, err := f.HighestSequenceNr(t.Context(), "a"); err != nil || n != want {
			t.Errorf("HighestSequenceNr is %d and %v, want %d", n, err, want)
		}
	}
}

// TestLateOutlivesItsContext checks that a late write is stored although its caller has cancelled
// the context.
func TestLateOutlivesItsContext(t *testing.T) {
	t.Parallel()
	f := journaltest.NewFaulty(inmem.NewJournal())
	f.Inject(journaltest.Fault{Do: journaltest.Late})
	f.Inject(journaltest.Fault{Op: journaltest.OpDelete, Do: journaltest.Late})
	ctx, cancel := context.WithCancel(t.Context())
	f.Append(ctx, []journal.Write{write("a", 0, 2)})
	if err := f.DeleteTo(ctx, "a", 1); !errors.Is(err, journaltest.ErrInjected) {
		t.Errorf("DeleteTo: %v, want ErrInjected", err)
	}
	cancel()
	f.Release() // in the order of the calls
	wantHighest(t, f, map[string]uint64{"a": 2})
	if got, err := all(f.Replay(t.Context(), "a", 1, 9)); err != nil || len(got) != 1 {
		t.Errorf("Replay yields %d events and %v, want 1", len(got), err)
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	f := journaltest.NewFaulty(inmem.NewJournal())
	if errs := f.Append(t.Context(), []journal.Write{write("old", 0, 3)}); errs != nil {
		t.Fatal(errs)
	}
	for op, call := range map[journaltest.Op]func() error{
		journaltest.OpAppend: func() error { return only(f.Append(t.Context(), []journal.Write{write("new", 0, 1)})) },
		journaltest.OpReplay: func() error {
			got, err := all(f.Replay(t.Context(), "old", 1, 9))
			if err == nil && len(got) != 3 {
				err = fmt.Errorf("the replay yields %d events, want 3", len(got))
			}
			return err
		},
		journaltest.OpHighest: func() error { _, err := f.HighestSequenceNr(t.Context(), "old"); return err },
		journaltest.OpDelete:  func() error { return f.DeleteTo(t.Context(), "another", 1) },
	} {
		stall := f.Inject(journaltest.Fault{Op: op, Do: journaltest.Stall, AfterEvents: 1})
		done := make(chan error)
		go func() { done <- call() }()
		<-stall.Struck()
		select {
		case err := <-done:
			t.Errorf("method %d returned %v, want it to stall", op, err)
		default:
		}
		stall.Release()
		if err := <-done; err != nil {
			t.Errorf("method %d after the release: %v, want nil", op, err)
		}
	}
	wantHighest(t, f, map[string]uint64{"new": 1})
}

// TestStallEndsWithItsContext checks that a stalled call has no effect if its context is cancelled.
func TestStallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := journaltest.NewFaulty(inmem.NewJournal())
	callerErr := errors.New("caller stopped waiting")
	for op := range journaltest.OpDelete + 1 {
		stall := f.Inject(journaltest.Fault{Op: op, Do: journaltest.Stall})
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-stall.Struck()
			cancel(callerErr)
		}()
		var err error
		switch op {
		case journaltest.OpAppend:
			errs := f.Append(ctx, []journal.Write{write("a", 0, 1), write("b", 0, 1)})
			if err = errs[0]; !errors.Is(errs[1], callerErr) || kind(err) != "unknown" {
				t.Errorf("Append returned %v, want unknown outcomes that match the cause", errs)
			}
		case journaltest.OpReplay:
			_, err = all(f.Replay(ctx, "a", 1, 9))
		case journaltest.OpHighest:
			_, err = f.HighestSequenceNr(ctx, "a")
		default:
			err = f.DeleteTo(ctx, "a", 1)
		}
		if !errors.Is(err, callerErr) {
			t.Errorf("method %d: %v, want the cause of its context", op, err)
		}
	}
	f.Release()
	wantHighest(t, f, map[string]uint64{"a": 0, "b": 0})
}

func TestFaultsOfReading(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := journaltest.NewFaulty(inmem.NewJournal())
	f.Append(ctx, []journal.Write{write("a", 0, 5)})
	for after, want := range []int{0, 1, 2, 3, 4, 5, 5} {
		f.Inject(journaltest.Fault{Op: journaltest.OpReplay, ID: "a", AfterEvents: after, Err: errOther})
		if got, err := all(f.Replay(ctx, "a", 1, 9)); !errors.Is(err, errOther) || len(got) != want {
			t.Errorf("Replay yields %d events and %v, want %d and the fault", len(got), err, want)
		}
	}
	if got, err := all(f.Replay(ctx, "a", 1, 9)); err != nil || len(got) != 5 {
		t.Errorf("Replay yields %d events and %v, want 5", len(got), err)
	}
	f.Inject(journaltest.Fault{
		Op: journaltest.OpReplay, When: func(c journaltest.Call) bool { return c.From == 2 && c.To == 3 },
	})
	for _, from := range []uint64{1, 2} {
		if _, err := all(f.Replay(ctx, "a", from, 3)); (err != nil) != (from == 2) {
			t.Errorf("Replay from %d: %v, want a fault from 2 only", from, err)
		}
	}

	for _, do := range []journaltest.Effect{journaltest.Lose, journaltest.Store, journaltest.Late, journaltest.Reject} {
		f.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: do})
		if n, err := f.HighestSequenceNr(ctx, "a"); !errors.Is(err, journaltest.ErrInjected) || n != 0 {
			t.Errorf("HighestSequenceNr is %d and %v, want ErrInjected", n, err)
		}
	}
	for do, left := range map[journaltest.Effect]int{journaltest.Lose: 5, journaltest.Store: 3, journaltest.Reject: 5} {
		f := journaltest.NewFaulty(inmem.NewJournal())
		f.Append(ctx, []journal.Write{write("a", 0, 5)})
		f.Inject(journaltest.Fault{Op: journaltest.OpDelete, Do: do})
		if err := f.DeleteTo(ctx, "a", 2); !errors.Is(err, journaltest.ErrInjected) {
			t.Errorf("DeleteTo: %v, want ErrInjected", err)
		}
		if got, err := all(f.Replay(ctx, "a", 1, 9)); err != nil || len(got) != left {
			t.Errorf("after effect %d of a deletion Replay yields %d events and %v, want %d", do, len(got), err, left)
		}
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	f := journaltest.NewFaulty(inmem.NewJournal())
	f.Inject(journaltest.Fault{Do: journaltest.Late})
	stall := f.Inject(journaltest.Fault{Do: journaltest.Stall, ID: "b"})
	always := f.Inject(journaltest.Fault{Times: -1})
	f.Append(t.Context(), []journal.Write{write("a", 0, 1)})
	done := make(chan []error)
	go func() { done <- f.Append(t.Context(), []journal.Write{write("b", 0, 1)}) }()
	<-stall.Struck()
	f.Reset()
	if errs := <-done; errs != nil {
		t.Errorf("a stalled Append after Reset: %v", errs)
	}
	f.Release()
	if errs := f.Append(t.Context(), []journal.Write{write("c", 0, 1)}); errs != nil {
		t.Errorf("Append after Reset: %v", errs)
	}
	always.Release() // has no effect
	wantHighest(t, f, map[string]uint64{"a": 0, "b": 1, "c": 1})
}

// TestOrderOfFaults injects two faults that match the same call. The first one applies until its
// Times are used up, then the second one applies.
func TestOrderOfFaults(t *testing.T) {
	t.Parallel()
	f := journaltest.NewFaulty(inmem.NewJournal())
	f.Inject(journaltest.Fault{Do: journaltest.Reject, Times: 2})
	f.Inject(journaltest.Fault{Do: journaltest.Conflict})
	var outcomes []string
	for range 4 {
		outcomes = append(outcomes, kind(only(f.Append(t.Context(), []journal.Write{write("a", 0, 1)}))))
	}
	if want := []string{"rejected", "rejected", "conflict", "stored"}; !slices.Equal(outcomes, want) {
		t.Errorf("outcomes of Append: %q, want %q", outcomes, want)
	}
}

func TestOptionalInterfacesOfTheInnerJournal(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	if l, ok := journal.As[journal.IDLister](journaltest.NewFaulty(j)); !ok || l != j {
		t.Errorf("As finds %v, want the inner journal", l)
	}
}
