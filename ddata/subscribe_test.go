// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// reader records the changes of a loop over Subscribe.
type reader struct {
	mu   sync.Mutex
	seen []string
	over bool
}

func (r *reader) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

func (r *reader) has(c ddata.Change) {
	text := fmt.Sprintf("%s %v", c.Key, c.Kind)
	if c.Kind == ddata.Changed {
		v, err := visits.Value(c)
		if text += fmt.Sprintf(" %d", v.Value()); err != nil {
			text = err.Error()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, text)
}

func read(ctx context.Context, of *ddata.Replicator, p ddata.Pattern) *reader {
	r := &reader{}
	go func() {
		for c := range of.Subscribe(ctx, p) {
			r.has(c)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.over = true
	}()
	return r
}

// A loop receives the current values and then each change, of a key or of all keys with a prefix,
// from any node.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b")
		a, b := rs[0], rs[1]
		w.must(w.add(a, "user-1", ddata.WriteAll(), 1))
		w.must(w.add(a, "user-2", ddata.WriteAll(), 2))
		w.must(w.add(a, "other", ddata.WriteAll(), 3))
		ctx, cancel := context.WithCancel(w.Context())
		one := read(ctx, b, ddata.Key[crdt.GCounter]("user-1").Any())
		users := read(ctx, b, ddata.Prefix("user-"))
		all := read(ctx, b, ddata.Prefix(""))
		check := func(peer string, r *reader, want ...string) {
			t.Helper()
			if got := r.take(); !slices.Equal(got, want) {
				t.Errorf("%s: got changes %q, want %q", peer, got, want)
			}
		}
		check("one", one)
		w.must(b.Flush(w.Context()))
		check("one", one, "user-1 changed 1")
		check("users", users, "user-1 changed 1", "user-2 changed 2")
		check("all", all, "other changed 3", "user-1 changed 1", "user-2 changed 2")

		w.must(w.add(a, "user-1", ddata.WriteLocal(), 10))
		w.must(w.add(b, "user-1", ddata.WriteLocal(), 100))
		w.must(w.add(a, "user-3", ddata.WriteLocal(), 5))
		w.sleep(2 * time.Second) // without Flush
		check("one", one, "user-1 changed 111")
		if got := users.take(); len(got) != 2 {
			t.Errorf("users: got changes %q, want 2", got)
		}
		w.must(ddata.Delete(w.Context(), a, ddata.Key[crdt.GCounter]("user-1"), ddata.WriteAll()))
		w.must(b.Flush(w.Context()))
		check("one", one, "user-1 deleted")
		check("users", users, "user-1 deleted")
		if s, err := b.Stats(w.Context()); err != nil || s.Subscribers != 3 {
			t.Errorf("got %d subscribers, %v, want 3", s.Subscribers, err)
		}
		cancel()
		synctest.Wait()
		if s, err := b.Stats(w.Context()); err != nil || s.Subscribers != 0 {
			t.Errorf("got %d subscribers, %v, want 0", s.Subscribers, err)
		}
		if one.mu.Lock(); !one.over {
			t.Error("the loop did not end")
		}
		one.mu.Unlock()
		for c := range b.Subscribe(w.Context(), ddata.Prefix("user-2")) {
			if _, err := cart.Value(c); !errors.Is(err, ddata.ErrType) {
				t.Errorf("reading a change as another type: got error %v, want ErrType", err)
			}
			break
		}
		if got := ddata.Prefix("a").String() + visits.Any().String(); got != "a*visits" {
			t.Errorf("got %q, want a*visits", got)
		}
	})
}

// A blocked loop blocks no other goroutine, keeps one change per key, and misses only replaced
// values.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{}, "a")[0]
		w.must(w.add(r, "key-0", ddata.WriteLocal(), 1))
		ctx, cancel := context.WithCancel(w.Context())
		blocked, done := make(chan struct{}), make(chan []string)
		go func() {
			var s reader
			for c := range r.Subscribe(ctx, ddata.Prefix("key-")) {
				if s.has(c); len(s.seen) == 1 {
					<-blocked
				}
			}
			done <- s.seen
		}()
		w.sleep(time.Second)
		for i := range 100 {
			w.must(w.add(r, ddata.Key[crdt.GCounter](fmt.Sprintf("key-%d", i%3)), ddata.WriteLocal(), 1))
			w.must(r.Flush(w.Context()))
		}
		close(blocked)
		synctest.Wait()
		cancel()
		if got, want := <-done, []string{"key-0 changed 1", "key-0 changed 35", "key-1 changed 33", "key-2 changed 33"}; !slices.Equal(got, want) {
			t.Errorf("got changes %q, want %q", got, want)
		}
	})
}

// Keys that are created and expire while a loop is blocked do not accumulate: the loop receives the
// expiry only of keys that it had received before.
func TestSlowSubscriberOfExpiringKeys(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{Expire: map[string]time.Duration{"session-*": time.Minute}}, "a")[0]
		add := func(key string) { w.must(w.add(r, ddata.Key[crdt.GCounter](key), ddata.WriteLocal(), 1)) }
		add("session-known")
		add("session-old")
		ctx, cancel := context.WithCancel(w.Context())
		blocked, done := make(chan struct{}), make(chan []string)
		go func() {
			var s reader
			for c := range r.Subscribe(ctx, ddata.Prefix("session-")) {
				if s.has(c); len(s.seen) == 1 {
					<-blocked
				}
			}
			done <- s.seen
		}()
		w.sleep(time.Second)
		add("session-known") // this change waits, and the key is not new
		for i := range 20 {
			add(fmt.Sprint("session-", i))
			w.sleep(time.Second)
		}
		w.sleep(3 * time.Minute)
		add("session-1")
		w.sleep(time.Second)
		close(blocked)
		synctest.Wait()
		cancel()
		if got, want := <-done, []string{"session-known changed 1", "session-old expired", "session-1 changed 1"}; !slices.Equal(got[:1], want[:1]) ||
			!slices.Contains(got, "session-known expired") || !slices.Contains(got, want[1]) || !slices.Contains(got, want[2]) || len(got) != 4 {
			t.Errorf("got changes %q, want 4 changes with two expiries", got)
		}
	})
	s := ddata.NewSubscriber()
	for i := range 1_000 {
		key := fmt.Sprint("session-", i%500)
		s.Put(key, ddata.Changed, true)
		if i%100 > 0 {
			s.Put(key, ddata.Expired, false)
		}
	}
	for range 1_000 {
		s.Put("session-0", ddata.Changed, false)
	}
	if waiting, ordered := s.Waiting(); waiting != 5 || ordered > 100 {
		t.Errorf("%d changes wait, %d keys in order, want 5 changes and at most 100 keys in order", waiting, ordered)
	}
	for i := range 5 {
		if c, found, _ := s.Take(); !found || c.Key != fmt.Sprint("session-", 100*i) {
			t.Errorf("change %d: got %v, found %t, want the key of the oldest change", i, c.Key, found)
		}
	}
	if _, found, _ := s.Take(); found {
		t.Error("the queue is not empty")
	}
}

// A key that is read outside of the loop does not expire. An unused key expires.
func TestExpire(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{Expire: map[string]time.Duration{"session-*": time.Minute}}, "a", "b")
		for _, key := range []ddata.Key[crdt.GCounter]{"session-1", "session-2", "other"} {
			w.must(w.add(rs[0], key, ddata.WriteAll(), 1))
		}
		r := read(w.Context(), rs[1], ddata.Prefix("session-"))
		w.sleep(time.Second)
		r.take()
		for range 20 {
			w.sleep(10 * time.Second)
			w.want(rs[1], "session-2", ddata.ReadLocal(), 1)
		}
		for _, o := range rs {
			if got := o.Keys(); !slices.Equal(got, []string{"other", "session-2"}) {
				t.Errorf("%v has the keys %v, want other and session-2", o.Node().Self(), got)
			}
		}
		if got := r.take(); !slices.Equal(got, []string{"session-1 expired"}) {
			t.Errorf("got changes %q, want the expiry of session-1", got)
		}
		_, err := w.get(rs[0], "session-1", ddata.ReadLocal())
		w.wantErr(err, ddata.ErrNotFound)
		w.must(w.add(rs[0], "session-1", ddata.WriteAll(), 7))
		w.want(rs[1], "session-1", ddata.ReadLocal(), 7)
	})
}

// An observer receives each request and the statistics. A panic of an observer is harmless.
func TestObserver(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var mu sync.Mutex
		var requests []string
		var stats []ddata.Stats
		rs := w.replicators(ddata.Config{StatsInterval: 10 * time.Second, Observer: ddata.Observer{
			Request: func(i ddata.RequestInfo) {
				mu.Lock()
				defer mu.Unlock()
				requests = append(requests, fmt.Sprint(i.Replicator, " ", i.Op, " ", i.Key, " ", i.Level, " ", i.Err != nil))
				panic("oh")
			},
			Stats: func(s ddata.Stats) {
				mu.Lock()
				defer mu.Unlock()
				stats = append(stats, s)
			},
		}}, "a", "b", "c")
		w.must(w.add(rs[0], visits, ddata.WriteMajority(), 1))
		_, err := w.get(rs[0], "other", ddata.ReadMajorityPlus(1).AtLeast(2))
		w.wantErr(err, ddata.ErrNotFound)
		w.must(ddata.Delete(w.Context(), rs[0], visits, ddata.WriteTo(2)))
		_, err = rs[0].Raw(w.Context(), "visits", ddata.ReadLocal())
		w.wantErr(err, ddata.ErrDeleted)
		w.sleep(11 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		want := []string{
			"ddata update visits majority false", "ddata get other majority plus 1 of at least 2 true",
			"ddata delete visits 2 nodes false", "ddata get visits local true",
		}
		if !slices.Equal(requests, want) {
			t.Errorf("got requests %q, want %q", requests, want)
		}
		if len(stats) != 3 {
			t.Fatalf("got statistics %d times, want 3", len(stats))
		}
		for _, s := range stats {
			if s.Replicas != 3 || s.Protocol.Tombstones != 1 || s.Protocol.Keys != 0 || s.Packets == 0 || s.Turns == 0 || s.Digest != stats[0].Digest || s.Malformed+s.Unsent > 0 {
				t.Errorf("got statistics %+v, want 3 replicas, 1 tombstone, no key, and an unchanged digest", s)
			}
		}
	})
}

// Computing statistics after many changes does not delay other requests.
func TestStatsInSeveralTurns(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{}, "a")[0]
		before, err := r.Stats(w.Context())
		w.must(err)
		for i := range 2_000 {
			w.must(w.add(r, ddata.Key[crdt.GCounter](fmt.Sprint("counter-", i)), ddata.WriteLocal(), 1))
		}
		after, err := r.Stats(w.Context())
		w.must(err)
		if turns := after.Turns - before.Turns; turns < 5 || after.Digest == before.Digest {
			t.Errorf("got %d turns for 2,000 changed keys, want at least 5 and another digest", turns)
		}
		again, err := r.Stats(w.Context())
		w.must(err)
		if turns := again.Turns - after.Turns; turns != 1 || again.Digest != after.Digest {
			t.Errorf("got %d turns without changes, want 1 and the same digest", turns)
		}
	})
}

// A subscription that cannot match any key ends at once and is logged.
func TestSubscribeInvalidPattern(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{}, "a")[0]
		for i, p := range []ddata.Pattern{ddata.Key[crdt.Flag]("visits*").Any(), ddata.Key[crdt.Flag]("").Any(), ddata.Prefix(strings.Repeat("x", 513))} {
			if got := slices.Collect(r.Subscribe(w.Context(), p)); len(got) > 0 {
				t.Errorf("%v: got changes %v, want none", p, got)
			}
			synctest.Wait() // the log is written by the node
			if got := strings.Count(w.log.String(), "subscription cannot match any key"); got != i+1 {
				t.Errorf("%v: got %d log lines, want one for each loop", p, got)
			}
		}
		if err := r.Err(); err != nil {
			t.Errorf("the replicator has ended: %v", err)
		}
	})
}

// The change of a removed key has no value and no type.
func TestDeletedChange(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{}, "a")[0]
		w.must(w.add(r, visits, ddata.WriteLocal(), 1))
		w.must(ddata.Delete(w.Context(), r, visits, ddata.WriteLocal()))
		for c := range r.Subscribe(w.Context(), visits.Any()) {
			if c.Kind != ddata.Deleted || c.Raw().Type() != "" {
				t.Errorf("got kind %v, type %q, want a deletion without a type", c.Kind, c.Raw().Type())
			}
			return
		}
	})
}
