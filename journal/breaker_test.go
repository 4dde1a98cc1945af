// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/journal"
)

var errUnreachable = fmt.Errorf("%w: connection refused", journal.ErrUnavailable)

func guard(t *testing.T, j journal.Journal, cfg journal.BreakerConfig) journal.Journal {
	t.Helper()
	g, err := journal.WithBreaker(j, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func someWrites(n int) []journal.Write {
	writes := make([]journal.Write, n)
	for i := range writes {
		writes[i] = journal.Write{ID: fmt.Sprint("id", i), Events: []journal.Event{{SequenceNr: 1}}}
	}
	return writes
}

// answers is an Append with a fixed answer.
func answers(slots ...error) func(context.Context, []journal.Write) []error {
	return func(context.Context, []journal.Write) []error { return slots }
}

// isOpen reports whether the breaker of g is open. If the breaker is closed, isOpen makes a call
// that succeeds.
func isOpen(t *testing.T, g journal.Journal, f *fake) bool {
	t.Helper()
	f.highest = func(context.Context, string) (uint64, error) { return 7, nil }
	_, err := g.HighestSequenceNr(t.Context(), "id")
	if err != nil && !errors.Is(err, journal.ErrBreakerOpen) {
		t.Fatal(err)
	}
	return err != nil
}

func TestBreakerDefaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{append: func(ctx context.Context, writes []journal.Write) []error {
			<-ctx.Done()
			return slices.Repeat([]error{ctx.Err()}, len(writes))
		}}
		g := guard(t, f, journal.BreakerConfig{})
		start := time.Now()
		for range 10 {
			slots := g.Append(t.Context(), someWrites(2))
			if len(slots) != 2 || !errors.Is(slots[0], context.DeadlineExceeded) || journal.NotStored(slots[0]) {
				t.Fatalf("got %v, want the journal's slots", slots)
			}
		}
		if took := time.Since(start); took != 10*10*time.Second {
			t.Errorf("10 calls took %v, want 10 s each", took)
		}
		time.Sleep(3*time.Second - 1)
		slots := g.Append(t.Context(), someWrites(2))
		if len(slots) != 2 {
			t.Fatalf("got %d slots, want 2", len(slots))
		}
		for _, err := range slots {
			if !errors.Is(err, journal.ErrNotSent) || !errors.Is(err, journal.ErrBreakerOpen) || !journal.NotStored(err) {
				t.Errorf("got %v, want ErrNotSent and ErrBreakerOpen", err)
			}
		}
		time.Sleep(time.Nanosecond)
		f.append = answers()
		if slots := g.Append(t.Context(), someWrites(2)); slots != nil {
			t.Errorf("the trial returned %v, want nil", slots)
		}
		if isOpen(t, g, f) {
			t.Error("the breaker is open after a successful trial")
		}
	})
}

func TestBreakerCountsUnansweredAppends(t *testing.T) {
	t.Parallel()
	conflict, rejected := &journal.ConflictError{}, &journal.RejectedError{Reason: errors.New("large")}
	for name, c := range map[string]struct {
		slots []error
		open  bool
	}{
		"lost":                    {[]error{errUnreachable}, true},
		"lost and skipped":        {[]error{errUnreachable, journal.ErrSkipped}, true},
		"lost and rejected":       {[]error{rejected, errUnreachable}, true},
		"not sent":                {[]error{fmt.Errorf("%w: %w", journal.ErrNotSent, errUnreachable)}, true},
		"some lost, some stored":  {[]error{errUnreachable, nil}, false},
		"some stored, some lost":  {[]error{nil, errUnreachable}, false},
		"some lost, one conflict": {[]error{errUnreachable, conflict}, false},
		"conflict":                {[]error{conflict, journal.ErrSkipped}, false},
		"rejected":                {[]error{rejected, journal.ErrSkipped}, false},
		"damaged":                 {[]error{&journal.CorruptError{File: "000001.log"}}, false},
		"closed":                  {[]error{fmt.Errorf("%w: %w", journal.ErrNotSent, journal.ErrClosed)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{append: answers(c.slots...)}
			g := guard(t, f, journal.BreakerConfig{MaxFailures: 2, ResetTimeout: time.Hour})
			for range 2 {
				if slots := g.Append(t.Context(), someWrites(len(c.slots))); !slices.Equal(slots, c.slots) {
					t.Fatalf("got %v, want %v", slots, c.slots)
				}
			}
			if open := isOpen(t, g, f); open != c.open {
				t.Errorf("the breaker is open: %v, want %v", open, c.open)
			}
		})
	}
}

func TestBreakerProtectsTheOtherCalls(t *testing.T) {
	t.Parallel()
	f := &fake{}
	for name, c := range map[string]struct {
		err  error
		open bool
	}{
		"unreachable": {errUnreachable, true},
		"damaged":     {&journal.CorruptError{File: "x"}, false},
		"newer":       {journal.ErrNewerVersion, false},
		"invalid":     {journal.CheckID(""), false},
		"closed":      {journal.ErrClosed, false},
	} {
		for call, do := range map[string]func(journal.Journal) error{
			"HighestSequenceNr": func(g journal.Journal) error {
				_, err := g.HighestSequenceNr(t.Context(), "id")
				return err
			},
			"DeleteTo": func(g journal.Journal) error { return g.DeleteTo(t.Context(), "id", 3) },
		} {
			f.highest = func(context.Context, string) (uint64, error) { return 0, c.err }
			f.delete = func(context.Context, string, uint64) error { return c.err }
			g := guard(t, f, journal.BreakerConfig{MaxFailures: 2, ResetTimeout: time.Hour})
			for range 2 {
				if err := do(g); !errors.Is(err, c.err) {
					t.Errorf("%s, %s: got %v, want the error of the journal", call, name, err)
				}
			}
			if open := isOpen(t, g, f); open != c.open {
				t.Errorf("%s, %s: the breaker is open: %v, want %v", call, name, open, c.open)
			}
			if err := do(g); c.open && !errors.Is(err, journal.ErrBreakerOpen) {
				t.Errorf("%s, %s: got %v, want ErrBreakerOpen", call, name, err)
			}
		}
	}
}

func TestBreakerTimeoutError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{delete: func(ctx context.Context, _ string, _ uint64) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		g := guard(t, f, journal.BreakerConfig{CallTimeout: time.Second})
		if err := g.DeleteTo(t.Context(), "id", 1); !errors.Is(err, journal.ErrCallTimeout) || !strings.Contains(err.Error(), "1s") {
			t.Errorf("got %v, want ErrCallTimeout after 1s", err)
		}
	})
}

func TestBreakerOnChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var states []bool
		f := &fake{append: answers(errUnreachable)}
		g := guard(t, f, journal.BreakerConfig{MaxFailures: 1, OnChange: func(open bool) {
			states = append(states, open)
		}})
		g.Append(t.Context(), someWrites(1))
		time.Sleep(3 * time.Second)
		g.Append(t.Context(), someWrites(1))
		time.Sleep(3 * time.Second)
		f.append = answers()
		g.Append(t.Context(), someWrites(1))
		if want := []bool{true, false}; !slices.Equal(states, want) {
			t.Errorf("OnChange was called with %v, want %v", states, want)
		}
	})
}

func TestBreakerForwardsReplay(t *testing.T) {
	t.Parallel()
	f := &fake{append: answers(errUnreachable), replay: func(_ context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
		return func(yield func(journal.Event, error) bool) {
			yield(journal.Event{SequenceNr: from + to, Writer: id}, nil)
		}
	}}
	g := guard(t, f, journal.BreakerConfig{MaxFailures: 1})
	g.Append(t.Context(), someWrites(1))
	for e, err := range g.Replay(t.Context(), "id", 3, 4) {
		if err != nil || e.SequenceNr != 7 || e.Writer != "id" {
			t.Errorf("Replay yields %v, %v, want event 7", e, err)
		}
	}
}

func TestBreakerOfAClosedJournal(t *testing.T) {
	t.Parallel()
	closed := 0
	f := &fake{append: answers(errUnreachable), close: func() error { closed++; return nil }}
	g := guard(t, f, journal.BreakerConfig{MaxFailures: 1})
	g.Append(t.Context(), someWrites(1))
	if err := g.Close(); err != nil || closed != 1 {
		t.Errorf("Close: %v, forwarded %d times, want nil and 1", err, closed)
	}
	f.append = answers(journal.ErrClosed)
	f.delete = func(context.Context, string, uint64) error { return journal.ErrClosed }
	if slots := g.Append(t.Context(), someWrites(1)); !errors.Is(slots[0], journal.ErrClosed) {
		t.Errorf("Append: %v, want ErrClosed", slots)
	}
	if err := g.DeleteTo(t.Context(), "id", 1); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("DeleteTo: %v, want ErrClosed", err)
	}
}

func TestBreakerConfigErrorNamesEachField(t *testing.T) {
	t.Parallel()
	_, err := journal.WithBreaker(&fake{}, journal.BreakerConfig{MaxFailures: -1, CallTimeout: -1, ResetTimeout: -1})
	if !errors.Is(err, journal.ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	for _, field := range []string{"MaxFailures", "CallTimeout", "ResetTimeout"} {
		if !strings.Contains(err.Error(), "BreakerConfig."+field) {
			t.Errorf("the error is %q, want one that names BreakerConfig.%s", err, field)
		}
	}
	if _, err := journal.WithBreaker(nil, journal.BreakerConfig{}); !errors.Is(err, journal.ErrInvalid) {
		t.Errorf("WithBreaker without a journal: %v, want ErrInvalid", err)
	}
}

func TestAsUnwraps(t *testing.T) {
	t.Parallel()
	p := &parallel{max: 3}
	g := guard(t, guard(t, p, journal.BreakerConfig{}), journal.BreakerConfig{})
	if got, ok := journal.As[journal.Parallel](g); !ok || got.MaxAppends() != 3 {
		t.Errorf("As returned %v, %v, want the journal inside of two wrappers", got, ok)
	}
	if outer, ok := journal.As[journal.Wrapper](g); !ok || any(outer) != any(g) {
		t.Error("As did not return the outermost match")
	}
	if _, ok := journal.As[journal.IDLister](g); ok {
		t.Error("As returned an interface that no journal implements")
	}
	if _, ok := journal.As[journal.IDLister](nil); ok {
		t.Error("As returned an interface of a nil journal")
	}
}

// immediate is a journal that declares itself immediate.
type immediate struct{ fake }

func (j *immediate) Immediate() journal.Journal { return j }

// TestImmediateHasNoBreaker checks that WithBreaker returns an immediate journal unchanged, but wraps a
// journal that only embeds an immediate one.
func TestImmediateHasNoBreaker(t *testing.T) {
	t.Parallel()
	j := &immediate{}
	if guard(t, j, journal.BreakerConfig{}) != journal.Journal(j) {
		t.Error("WithBreaker wraps an immediate journal")
	}
	if _, err := journal.WithBreaker(j, journal.BreakerConfig{MaxFailures: -1}); !errors.Is(err, journal.ErrInvalid) {
		t.Errorf("an invalid configuration: %v, want ErrInvalid", err)
	}
	embeds := &struct{ *immediate }{j}
	if guard(t, embeds, journal.BreakerConfig{}) == journal.Journal(embeds) {
		t.Error("WithBreaker does not wrap a journal that embeds an immediate one")
	}
}
