// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package loop_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/internal/loop"
)

func TestMailbox(t *testing.T) {
	t.Parallel()
	m := loop.NewMailbox[int](loop.NewSignal(), loop.Limit{Count: 2}, loop.Limit{Bytes: 10})
	if err := errors.Join(m.Offer(0, 1, 1), m.Offer(1, 8, 2), m.Offer(0, 1, 3)); err != nil {
		t.Fatal(err)
	}
	if err := m.Offer(0, 1, 4); !errors.Is(err, loop.ErrFull) {
		t.Errorf("a third entry in a class of 2: %v, want ErrFull", err)
	}
	if err := m.Offer(1, 3, 5); !errors.Is(err, loop.ErrFull) {
		t.Errorf("11 bytes in a class of 10: %v, want ErrFull", err)
	}
	m.Add(6)
	select {
	case <-m.Ready:
	default:
		t.Error("the signal is not set")
	}
	got := m.Take(nil)
	if !slices.Equal(got, []int{1, 2, 3, 6}) {
		t.Errorf("Take returned %v, want [1 2 3 6]", got)
	}
	if err := m.Offer(1, 100, 7); err != nil {
		t.Errorf("a large entry in an empty class: %v", err)
	}
	if rest := m.Close(); !slices.Equal(rest, []int{7}) || m.Add(8) || !errors.Is(m.Offer(0, 1, 8), loop.ErrClosed) {
		t.Errorf("Close returned %v, want [7]; Add and Offer must fail after it", rest)
	}
}

func TestMailboxReceive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := loop.NewMailbox[int](loop.NewSignal(), loop.Limit{Count: 1})
		size := func(int) (int, int) { return 0, 5 }
		var done sync.WaitGroup
		results := make([]error, 4)
		ctx, cancel := context.WithCancel(t.Context())
		for i, ctx := range []context.Context{t.Context(), t.Context(), ctx, t.Context()} {
			done.Go(func() { results[i] = m.Receive(ctx, 0, 5, i) })
			synctest.Wait()
		}
		if v, found, more := m.TakeOne(size); v != 0 || !found || more {
			t.Errorf("TakeOne returned %d, %t, %t, want 0, true, false", v, found, more)
		}
		synctest.Wait() // one of the waiting entries is accepted
		if m.Len() != 1 {
			t.Errorf("the mailbox has %d entries, want 1", m.Len())
		}
		cancel()
		synctest.Wait()
		m.Close()
		done.Wait()
		failed := 0
		for _, err := range results {
			if err != nil {
				failed++
			}
		}
		if _, found, _ := m.TakeOne(size); found || failed != 2 {
			t.Errorf("results %v, want 2 errors and no entry after Close", results)
		}
	})
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f loop.InFlight
		if !f.Wait(t.Context()) {
			t.Error("Wait failed before any operation")
		}
		f.Begin()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if f.Wait(ctx) {
			t.Error("Wait succeeded while an operation was in flight")
		}
		go func() { time.Sleep(time.Second); f.End() }()
		if !f.Wait(t.Context()) {
			t.Error("Wait failed although the operation has ended")
		}
	})
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var throttle loop.Throttle[int]
		for range 4 {
			throttle.Log(t.Context(), log, 1, slog.LevelWarn, "one")
		}
		throttle.Log(t.Context(), log, 2, slog.LevelWarn, "two")
		time.Sleep(time.Minute)
		throttle.Log(t.Context(), log, 1, slog.LevelWarn, "one", slog.String("key", "value"))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || !strings.Contains(lines[2], "key=value not_logged_before=3") {
			t.Errorf("want 3 lines, the last one with not_logged_before=3; got\n%s", out.String())
		}
	})
}

func TestDispatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := loop.NewDispatcher(t.Context(), slog.New(slog.NewTextHandler(&out, nil)))
		open := make(chan struct{})
		d.Do(func() { <-open })
		synctest.Wait()
		d.Log(slog.LevelInfo, "first")
		d.Do(func() { panic("boom") })
		slog.New(d.Handler(slog.NewTextHandler(&out, nil))).With(slog.Int("a", 1)).Info("second")
		for range 4096 {
			d.Do(func() {})
		}
		close(open)
		d.Close(time.Minute)
		d.Log(slog.LevelInfo, "last")
		text := out.String()
		for _, want := range []string{"first", "boom", "second a=1", "count=3", "last"} {
			i := strings.Index(text, want)
			if i < 0 {
				t.Fatalf("%q is missing, or out of order:\n%s", want, out.String())
			}
			text = text[i:]
		}
	})
}

func TestDispatcherCloseTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := loop.NewDispatcher(t.Context(), slog.New(slog.DiscardHandler))
		open := make(chan struct{})
		d.Do(func() { <-open })
		start := time.Now()
		d.Close(time.Second)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Close took %v, want 1s", took)
		}
		d.Do(func() { t.Error("a function was called after Close had timed out") })
		close(open)
	})
}
