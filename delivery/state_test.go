// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// ends is a state with both ends of deliveries.
type ends struct {
	Out delivery.Outbox[Credit]
	In  delivery.Inbox
}

func endsCodec(tb testing.TB) *codec.State {
	tb.Helper()
	c, err := codec.NewState(reflect.TypeFor[*ends]())
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// sample returns a state in which every field is used.
func sample() *ends {
	var e ends
	for i := range 4 {
		e.Out.Deliver(eventsourcing.Address{Type: "account", ID: "bob"}, Credit{Amount: 10 * i})
	}
	e.Out.Confirm(1)
	e.Out.Confirm(3)
	e.In.Record(from("account|zoe#Transfers", 7, 5))
	e.In.RecordRefusal(from("account|zoe#Transfers", 6, 5), errLocked)
	e.In.Record(from("account|amy#Transfers", 1, 1))
	return &e
}

func encode(tb testing.TB, e *ends) []byte {
	tb.Helper()
	data, err := endsCodec(tb).Encode(e)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func decode(tb testing.TB, data []byte) *ends {
	tb.Helper()
	var e ends
	if err := endsCodec(tb).Decode(data, &e); err != nil {
		tb.Fatal(err)
	}
	return &e
}

// golden is the encoded sample in version 0. Existing snapshots have this form, so it never
// changes.
const golden = "82a34f757482a16c04a16f9282a16e02a16983a174a76163636f756e74a164a3626f62a16d81a6416d6f756e740a82a16e04" +
	"a16983a174a76163636f756e74a164a3626f62a16d81a6416d6f756e741ea2496e81a17382b56163636f756e747c616d7923" +
	"5472616e736665727382a16601a1729181a16e01b56163636f756e747c7a6f65235472616e736665727382a16605a1729282" +
	"a16e06a16f82a163ab746573742f6c6f636b6564a16db5746865206163636f756e74206973206c6f636b656481a16e07"

func TestStoredForm(t *testing.T) {
	t.Parallel()
	data := encode(t, sample())
	if got := hex.EncodeToString(data); got != golden {
		t.Errorf("the sample is stored as\n%s, want\n%s", got, golden)
	}
	want, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	e := decode(t, want)
	if again := encode(t, e); !bytes.Equal(again, data) {
		t.Errorf("the decoded sample is encoded as %x, want %x", again, data)
	}
	all := slices.Collect(e.Out.All())
	if len(all) != 2 || all[0].Nr != 2 || all[1].Nr != 4 || all[1].To.ID != "bob" || all[1].To.Type != "account" || all[1].Message.Amount != 30 {
		t.Errorf("the outbox contains %+v, want deliveries 2 and 4", all)
	}
	if nr := e.Out.Deliver(eventsourcing.Address{}, Credit{}); nr != 5 {
		t.Errorf("the next number is %d, want 5", nr)
	}
	zoe := "account|zoe#Transfers"
	if !e.In.Seen(from(zoe, 4, 0)) || e.In.Seen(from(zoe, 5, 0)) || !e.In.Seen(from(zoe, 7, 0)) || !errors.Is(e.In.Refusal(from(zoe, 6, 0)), errLocked) || e.In.Senders() != 2 {
		t.Errorf("the inbox contains %+v, want the records of the sample", e.In)
	}
}

func TestEmptyStateIsSmall(t *testing.T) {
	t.Parallel()
	data := encode(t, &ends{})
	if want := 2 * len("xIn."); len(data) > want+2 {
		t.Errorf("an empty outbox and inbox take %d bytes: %x", len(data), data)
	}
	e := decode(t, data)
	if e.Out.Unconfirmed() != 0 || e.In.Senders() != 0 {
		t.Errorf("the decoded state is %+v, want an empty outbox and inbox", e)
	}
	if nr := e.Out.Deliver(eventsourcing.Address{}, Credit{}); nr != 1 {
		t.Errorf("the first number is %d, want 1", nr)
	}
}

// TestRestored checks that restored deliveries are due at once, as if they had never been sent,
// with the options of the outbox.
func TestRestored(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	data := encode(t, sample())
	e := &ends{}
	delivery.Configure[int](&e.Out, delivery.Options{Interval: time.Minute, Burst: 1})
	if err := e.Out.Attach("account|al", "Out"); err != nil {
		t.Fatal(err)
	}
	if err := endsCodec(t).Decode(data, e); err != nil {
		t.Fatal(err)
	}
	sends := e.Out.Recovered(now).Sends
	if len(sends) != 1 || sends[0].Attempt != 1 || as[Credit](t, sends[0].Command).Header != from("account|al#Out", 2, 2) {
		t.Errorf("a recovery sends %+v, want delivery 2 once", sends)
	}
	if next := e.Out.Next(); !next.Equal(now.Add(30 * time.Second)) {
		t.Errorf("the next tick is at %v, want %v", next, now.Add(30*time.Second))
	}
	if sends = e.Out.Tick(now.Add(30 * time.Second)).Sends; len(sends) != 1 || as[Credit](t, sends[0].Command).Header != from("account|al#Out", 4, 2) {
		t.Errorf("the tick sends %+v, want delivery 4", sends)
	}
}

// TestRestore checks that an outbox keeps its identity when it takes over the deliveries of another
// one.
func TestRestore(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	old := sample()
	old.Out.Recovered(now)
	e := &ends{}
	delivery.Configure[int](&e.Out, delivery.Options{Interval: time.Minute, Burst: 1})
	if err := e.Out.Attach("account|al", "Out"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Out.Restore(&old.Out); err != nil {
			t.Fatal(err)
		}
		sends := e.Out.Recovered(now).Sends
		if len(sends) != 1 || sends[0].Attempt != 1 || as[Credit](t, sends[0].Command).Header != from("account|al#Out", 2, 2) {
			t.Errorf("a recovery sends %+v, want delivery 2 once", sends)
		}
		if nr := e.Out.Deliver(eventsourcing.Address{}, Credit{}); nr != 5 {
			t.Errorf("the next number is %d, want 5", nr)
		}
		if got, want := old.Out.Unconfirmed(), 2; got != want {
			t.Errorf("the other outbox has %d unconfirmed deliveries, want %d", got, want)
		}
	}
	old = &ends{} // without confirmations, so that its deliveries are contiguous
	old.Out.Deliver(eventsourcing.Address{Type: "account", ID: "bob"}, Credit{})
	old.Out.Recovered(now)
	if err := e.Out.Restore(&old.Out); err != nil {
		t.Fatal(err)
	}
	if d, ok := old.Out.Pending(1); !ok || d.Attempts != 1 {
		t.Errorf("delivery 1 of the other outbox is %+v, want it unchanged", d)
	}
	if err := e.Out.Restore(&delivery.Outbox[Credit]{}); err != nil || e.Out.Unconfirmed() != 0 {
		t.Errorf("after Restore from an empty outbox %d deliveries are unconfirmed, %v, want 0", e.Out.Unconfirmed(), err)
	}
}

func TestBrokenStates(t *testing.T) {
	t.Parallel()
	good := encode(t, sample())
	for name, change := range map[string][2]string{
		"newer outbox":            {"a16c04", "a17604"}, // its first field is the version
		"number over the last":    {"a16e04", "a16e05"},
		"number twice":            {"a16e04", "a16e02"},
		"receipt below the floor": {"a16e06", "a16e04"},
		"receipts not in order":   {"a16e06", "a16e07"},
	} {
		changed := strings.Replace(hex.EncodeToString(good), change[0], change[1], 1)
		data, err := hex.DecodeString(changed)
		if err != nil || bytes.Equal(data, good) {
			t.Fatalf("%s: %v, and the replacement changed nothing in %x", name, err, good)
		}
		var e ends
		if err := endsCodec(t).Decode(data, &e); !errors.Is(err, codec.ErrMalformed) || !strings.Contains(err.Error(), "delivery: decode an") {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
}

// TestNewerStates checks that the state of a newer program is refused and not partly read.
func TestNewerStates(t *testing.T) {
	t.Parallel()
	good := hex.EncodeToString(encode(t, sample()))
	for name, change := range map[string][2]string{
		"outbox": {"a34f757482", "a34f757483a17601"}, // the name of the field, and a map with one more entry
		"inbox":  {"a2496e81", "a2496e82a17601"},
	} {
		for version, want := range map[string]string{"01": "version 1 is newer than this program, which reads version 0", "00": ""} {
			data, err := hex.DecodeString(strings.Replace(good, change[0], strings.TrimSuffix(change[1], "01")+version, 1))
			if err != nil {
				t.Fatal(err)
			}
			var e ends
			if err = endsCodec(t).Decode(data, &e); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, version %s: %v, want %q", name, version, err, want)
			}
		}
	}
}

// TestSnapshotsInRuntime checks that snapshots contain outboxes and inboxes, and that later
// events are replayed.
func TestSnapshotsInRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := eventsourcing.Config{Store: store.Of(inmem.NewJournal(), inmem.NewSnapshotStore())}
		p := &probe{}
		p.ignores.Store(true)
		b := openBank(t, cfg, accountType(p), eventsourcing.HostOptions{}) // a snapshot each 5 events
		ask(t, b, "alice", Deposit{Amount: 100})
		for range 6 {
			ask(t, b, "alice", Transfer{To: "bob", Amount: 10})
		}
		b.close(t)

		var recovered eventsourcing.RecoveryInfo
		cfg.Observer.Recovery = func(i eventsourcing.RecoveryInfo) {
			if i.PersistenceID == "account|alice" {
				recovered = i
			}
		}
		b = openBank(t, cfg, accountType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		ask(t, b, "alice", Lookup{})
		time.Sleep(time.Minute)
		if recovered.SnapshotNr != 5 || recovered.Events != 2 {
			t.Errorf("alice was recovered from %+v, want the snapshot at 5 and two events", recovered)
		}
		if got := ask(t, b, "alice", Lookup{}); got.Balance != 40 || got.InFlight != 0 || got.Unconfirmed != 0 {
			t.Errorf("alice has %+v, want the balance 40 and nothing in flight", got)
		}
		if got := ask(t, b, "bob", Lookup{}); got.Balance != 60 {
			t.Errorf("bob has %+v, want 60", got)
		}
		if nr := ask(t, b, "alice", Transfer{To: "bob", Amount: 10}); nr != 7 {
			t.Errorf("the next delivery has number %d, want 7", nr)
		}
	})
}
