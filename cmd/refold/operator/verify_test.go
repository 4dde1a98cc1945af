// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
)

// good returns n valid events without a linked type.
func good(n uint64) []journal.Event {
	events := make([]journal.Event, n)
	for i := range events {
		nr := uint64(i) + 1
		events[i] = journal.Event{SequenceNr: nr, Time: at(nr), Writer: "w", Manifest: "noted", Payload: []byte{0x80}}
	}
	return events
}

// with returns a changed copy of a history.
func with(events []journal.Event, change func(e []journal.Event) []journal.Event) []journal.Event {
	return change(slices.Clone(events))
}

// saved is a snapshot of "a|1".
func saved(nr uint64, manifest string, payload []byte) snapshot.Snapshot {
	return snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "a|1", SequenceNr: nr, Time: at(nr)}, Manifest: manifest, Payload: payload}
}

var errDisk = errors.New("disk on fire")

func TestVerifyFindsProblems(t *testing.T) {
	t.Parallel()
	state := []byte{0x80}
	for name, c := range map[string]struct {
		records   []journal.Event
		highest   uint64 // 0 stands for the number of the last record
		after     uint64
		err       error
		snapshots *fakeSnapshots
		linked    bool
		want      []string // the prefixes of the problems
	}{
		"valid": {records: good(3), snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(3, "state", state)}}},
		"gap": {
			records: with(good(9), func(e []journal.Event) []journal.Event { return slices.Delete(e, 3, 5) }),
			want:    []string{`"a|1": journal: gap in the history of "a|1": event 4 is missing, found 6`},
		},
		"end missing": {
			records: good(3), highest: 5,
			want: []string{`"a|1": journal: gap in the history of "a|1": event 4 and all later events are missing`},
		},
		"above the highest": {
			records: good(3), highest: 2,
			want: []string{`"a|1" at 3: the record is above the highest number, which is 2`},
		},
		"appended during the replay": {records: good(3), highest: 2, after: 3},
		"appended after the replay":  {records: good(3), highest: 3, after: 5},
		"highest number decreased": {
			records: good(3), highest: 3, after: 2,
			want: []string{`"a|1": the highest number decreased from 3 to 2`},
		},
		"duplicate number": {
			records: with(good(3), func(e []journal.Event) []journal.Event { return slices.Insert(e, 2, e[1]) }),
			want:    []string{`"a|1" at 2: the record follows record 2`},
		},
		"number 0": {
			records: with(good(2), func(e []journal.Event) []journal.Event {
				return slices.Insert(e, 0, journal.Event{Manifest: "noted", Payload: state})
			}),
			want: []string{`"a|1": a record has the number 0`},
		},
		"time decreased": {
			records: with(good(3), func(e []journal.Event) []journal.Event { e[2].Time = e[2].Time.Add(-2 * time.Second); return e }),
			want:    []string{`"a|1" at 3: the time decreased from 2026-01-02T12:00:02.000000Z to 2026-01-02T12:00:01.000000Z`},
		},
		"same time": {records: with(good(3), func(e []journal.Event) []journal.Event { e[2].Time = e[1].Time; return e })},
		"truncated payload": {
			records: with(good(3), func(e []journal.Event) []journal.Event { e[1].Payload = []byte{0x81, 0xa1}; return e }),
			want:    []string{`"a|1" at 2: codec: malformed data`},
		},
		"empty payload": {
			records: with(good(3), func(e []journal.Event) []journal.Event { e[1].Payload = nil; return e }),
			want:    []string{`"a|1" at 2: codec: malformed data`},
		},
		"invalid JSON": {
			records: with(good(3), func(e []journal.Event) []journal.Event {
				e[1].Manifest, e[1].Payload = "x@2+json", []byte("{")
				return e
			}),
			want: []string{`"a|1" at 2: the payload is not valid JSON`},
		},
		"valid JSON": {
			records: with(good(3), func(e []journal.Event) []journal.Event {
				e[1].Manifest, e[1].Payload = "x@2+json", []byte("{}")
				return e
			}),
		},
		"manifest missing": {
			records: with(good(3), func(e []journal.Event) []journal.Event { e[1].Manifest = ""; return e }),
			want:    []string{`"a|1" at 2: the record has no manifest, but a payload of length 1`},
		},
		"record damaged": {
			records: good(2), highest: 5, err: &journal.CorruptError{File: "000007.ldb", Offset: 12, Detail: "checksum"},
			want: []string{`"a|1" at 2: the records after it are unreadable: journal: corrupt: 000007.ldb at offset 12: checksum`},
		},
		"unknown event of a linked type": {
			records: good(1), linked: true,
			want: []string{`"a|1" at 1: codec: unknown manifest: "noted"`},
		},
		"rejected by the upcaster of a linked type": {
			records: []journal.Event{{SequenceNr: 1, Manifest: "deposited", Payload: pack(t, map[string]int{"Amount": -1})}}, linked: true,
			want: []string{`"a|1" at 1: codec: upcast deposited: no such deposit`},
		},
		"removed event of a linked type": {records: []journal.Event{{SequenceNr: 1, Manifest: "gone", Payload: nil}}, linked: true},
		"deleted, no store": {
			records: good(5)[2:],
			want:    []string{`"a|1": deleted prefix: the events up to 2 are deleted, and the journal has no snapshot store`},
		},
		"deleted and covered": {
			records: good(5)[2:], snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(2, "state", state)}},
		},
		"deleted, not covered": {
			records: good(5)[2:], snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(1, "state", state)}},
			want: []string{`"a|1": deleted prefix: the events up to 2 are deleted, and no valid snapshot covers them`},
		},
		"all deleted and covered": {
			highest: 5, snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(5, "state", state)}},
		},
		"all deleted, not covered": {
			highest: 5, snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(4, "state", state)}},
			want: []string{`"a|1": deleted prefix: the events up to 5 are deleted, and no valid snapshot covers them`},
		},
		"covered by a damaged snapshot only": {
			records: good(5)[2:],
			snapshots: &fakeSnapshots{
				stored:  []snapshot.Snapshot{saved(2, "state", state)},
				loadErr: map[uint64]error{2: &snapshot.CorruptError{File: "2.snap", Reason: errDisk}},
			},
			want: []string{
				`"a|1" at 2: the snapshot is unreadable: snapshot: corrupt: 2.snap: disk on fire`,
				`"a|1": deleted prefix: the events up to 2 are deleted, and no valid snapshot covers them`,
			},
		},
		"snapshot above the highest": {
			records: good(3), snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(4, "state", state), saved(3, "state", state)}},
			want: []string{`"a|1" at 4: the snapshot is above the highest number, which is 3`},
		},
		"truncated snapshot": {
			records: good(3), snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(3, "state", []byte{0x81})}},
			want: []string{`"a|1" at 3: the snapshot cannot be decoded: codec: malformed data`},
		},
		"snapshot of a linked type": {
			records: []journal.Event{{SequenceNr: 1, Manifest: "gone"}}, linked: true,
			snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(1, "state", pack(t, map[string]any{"Owner": 7}))}},
			want:      []string{`"a|1" at 1: the snapshot cannot be decoded: codec: decode state operator_test.account: Owner: malformed data`},
		},
		"snapshot that a linked type did not write": {
			records: []journal.Event{{SequenceNr: 1, Manifest: "gone"}}, linked: true,
			snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(1, "self", state)}},
			want:      []string{`"a|1" at 1: the snapshot cannot be decoded: codec: unknown manifest: snapshot manifest "self"`},
		},
		"snapshots cannot be listed": {
			records: good(3), snapshots: &fakeSnapshots{listErr: errDisk},
			want: []string{`"a|1": the snapshots cannot be listed: disk on fire`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &fakeJournal{records: map[string][]journal.Event{"a|1": c.records}}
			if c.highest > 0 {
				j.highest = map[string]uint64{"a|1": c.highest}
			}
			if c.after > 0 {
				j.after = map[string]uint64{"a|1": c.after}
			}
			if c.err != nil {
				j.errs = map[string]error{"a|1": c.err}
			}
			opts := operator.VerifyOptions{}
			if c.snapshots != nil {
				opts.Snapshots = c.snapshots
			}
			if c.linked {
				typ := accountType()
				typ.Name = "a"
				opts.Entities = []operator.Linked{operator.Entity(typ)}
			}
			report, err := operator.Verify(t.Context(), j, opts)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range report.Problems {
				got = append(got, p.String())
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if report.IDs != 1 || report.Records != uint64(len(c.records)) {
				t.Errorf("verified %d IDs and %d records, want 1 and %d", report.IDs, report.Records, len(c.records))
			}
		})
	}
}

// Snapshots of another Snapshots.Version are no problem for verify and rebuild, because recoveries
// ignore them. An unreadable snapshot remains one.
func TestSnapshotsOfOtherVersions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.event("account|1", opened{Owner: "Ada"})
	f.event("account|1", deposited{Amount: 7, Currency: "USD"})
	f.event("account|1", withdrawn{Amount: 1})
	f.snapshot("account|1", 1, "state@2", pack(t, map[string]any{"Owner": "Ada", "Balance": map[string]any{}}))
	f.state("account|1", 2, []byte("another meaning"))
	f.snapshot("account|1", 3, "state@3", []byte("the state of a newer program"))
	f.event("account|2", opened{Owner: "Bob"})
	f.event("account|2", withdrawn{Amount: 1})
	f.event("account|2", withdrawn{Amount: 1})
	f.state("account|2", 3, pack(t, map[string]any{"Owner": "Bob"}))
	f.snapshot("account|2", 2, "state@2", pack(t, map[string]any{"Owner": 7}))
	f.event("account|3", opened{Owner: "Eve"})
	f.state("account|3", 1, pack(t, map[string]any{"Owner": "Eve"}))
	if err := f.db.Journal().DeleteTo(t.Context(), "account|3", 1); err != nil {
		t.Fatal(err)
	}
	f.close()
	typ := accountType()
	typ.Snapshots.Version = 2
	for command, wants := range map[string][]string{
		"verify account|1":        {"1 persistence ID, 3 records (0 fences), 3 snapshots: 0 problems; 2 snapshots of another Snapshots.Version, which recoveries ignore\n"},
		"verify --json account|1": {`"other_versions":2,"problems":0`},
		"rebuild account|1":       {"from the snapshot at 1 and 2 records", "The states are equal"},
		"verify account|2":        {`"account|2" at 2: the snapshot cannot be decoded`, "1 problem; 1 snapshot of another", "exit 1"},
		"rebuild account|2":       {"The snapshot at 2 is unreadable and was not used", "exit 1"},
		"verify account|3":        {"the events up to 1 are deleted, and no valid snapshot covers them", "exit 1"},
	} {
		out := run(t, f.dir, strings.Fields(command), []operator.Linked{operator.Entity(typ)})
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s prints\n%swant %q", command, out, want)
			}
		}
		if strings.Contains(out, "exit") != slices.Contains(wants, "exit 1") {
			t.Errorf("%s prints\n%swhich has an unexpected exit status", command, out)
		}
	}
}

func TestVerifyContinuesAfterProblem(t *testing.T) {
	t.Parallel()
	j := &fakeJournal{
		records: map[string][]journal.Event{"a|1": good(2), "b|1": good(3)[1:], "c|1": good(1)},
		errs:    map[string]error{"a|1": &journal.CorruptError{File: "x", Offset: -1, Detail: "bad"}},
	}
	var seen []uint64
	report, err := operator.Verify(t.Context(), j, operator.VerifyOptions{
		MaxProblems: 1, Progress: func(ids uint64) { seen = append(seen, ids) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.IDs != 3 || report.Records != 5 || len(report.Problems) != 1 || report.Omitted != 1 || report.Found() != 2 {
		t.Errorf("report %+v, want 3 IDs, 5 records, 1 listed and 1 omitted problem", report)
	}
	if !errors.Is(report.Problems[0], journal.ErrCorrupt) {
		t.Errorf("problem %v, want journal.ErrCorrupt", report.Problems[0])
	}
	if !slices.Equal(seen, []uint64{1, 2, 3}) {
		t.Errorf("progress %v, want 1, 2, 3", seen)
	}
}

func TestVerifyCounts(t *testing.T) {
	t.Parallel()
	records := good(4)
	records[1] = journal.Event{SequenceNr: 2, Time: at(2)}
	records[2].Manifest, records[2].Payload = "noted+proto", []byte{0xc1}
	report, err := operator.Verify(t.Context(), &fakeJournal{records: map[string][]journal.Event{"a|1": records}}, operator.VerifyOptions{
		Snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(4, "safe+own", []byte{0xc1})}},
	})
	if err != nil || report.Found() != 0 {
		t.Fatalf("report %+v, error %v; want no problems", report, err)
	}
	if report.Records != 4 || report.Fences != 1 || report.Snapshots != 1 || report.Unchecked != 2 {
		t.Errorf("report %+v, want 4 records, 1 fence, 1 snapshot and 2 unchecked payloads", report)
	}
}

// Verify returns a failure that does not concern the data as an error, and not as a problem.
func TestVerifyFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		journal journal.Journal
		opts    operator.VerifyOptions
		want    error
	}{
		"store unavailable": {
			journal: &fakeJournal{records: map[string][]journal.Event{"a|1": good(1)}, errs: map[string]error{"a|1": journal.ErrUnavailable}},
			want:    journal.ErrUnavailable,
		},
		"IDs cannot be listed": {journal: &fakeJournal{listErr: errDisk}, want: errDisk},
		"no lister":            {journal: struct{ journal.Journal }{}, want: operator.ErrNoLister},
		"snapshot store closed": {
			journal: &fakeJournal{records: map[string][]journal.Event{"a|1": good(1)}},
			opts:    operator.VerifyOptions{Snapshots: &fakeSnapshots{listErr: snapshot.ErrClosed}},
			want:    snapshot.ErrClosed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := operator.Verify(t.Context(), c.journal, c.opts); !errors.Is(err, c.want) {
				t.Errorf("Verify returned the error %v, want %v", err, c.want)
			}
		})
	}
}

func TestVerifyCanceled(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	if slots := j.Append(t.Context(), []journal.Write{{ID: "a|1", Writer: "w", Events: good(1)}}); slots != nil {
		t.Fatal(slots)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := operator.Verify(ctx, j, operator.VerifyOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Verify returned the error %v, want the error of the context", err)
	}
}

func TestVerifyRejectsInvalidTypes(t *testing.T) {
	t.Parallel()
	broken := accountType()
	broken.Events = codec.Types(codec.Name[opened]("a"), codec.Name[opened]("b"))
	nameless := accountType()
	nameless.Name = ""
	stateless := accountType()
	stateless.Apply = nil
	for _, l := range []operator.Linked{{}, operator.Entity(broken), operator.Entity(nameless), operator.Entity(stateless)} {
		if _, err := operator.Verify(t.Context(), inmem.NewJournal(), operator.VerifyOptions{Entities: []operator.Linked{l}}); err == nil {
			t.Errorf("Verify with the invalid type %+v returned no error", l)
		}
	}
}

func TestProblemText(t *testing.T) {
	t.Parallel()
	p := operator.Problem{ID: "a|1", Err: errDisk}
	if got, want := p.Error(), `"a|1": disk on fire`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !errors.Is(p, errDisk) {
		t.Errorf("the problem %v does not match its error %v", p, errDisk)
	}
}

func TestVerifyChecksOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		id       string
		order    error
		problems []string
		want     error
	}{
		"complete":    {},
		"damaged":     {order: &journal.CorruptError{File: "order", Offset: -1, Detail: "an event is missing"}, problems: []string{"journal: corrupt: order: an event is missing"}},
		"unavailable": {order: journal.ErrUnavailable, want: journal.ErrUnavailable},
		"only one ID": {id: "a|1", order: journal.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &fakeJournal{records: map[string][]journal.Event{"a|1": good(2)}}
			report, err := operator.Verify(t.Context(), j, operator.VerifyOptions{ID: c.id, Order: func(context.Context) error { return c.order }})
			var problems []string
			for _, p := range report.Problems {
				problems = append(problems, p.String())
			}
			if !errors.Is(err, c.want) || !slices.Equal(problems, c.problems) {
				t.Errorf("problems %q, error %v, want %q, %v", problems, err, c.problems, c.want)
			}
		})
	}
}

// Verify compares each snapshot of a type that is part of the program with the replayed state.
func TestVerifyComparesSnapshots(t *testing.T) {
	t.Parallel()
	state := func(tb testing.TB, owner string, usd int64, last ...int64) []byte {
		tb.Helper()
		return pack(tb, map[string]any{"Owner": owner, "Balance": map[string]int64{"USD": usd}, "Last": last})
	}
	for name, c := range map[string]struct {
		change     func(f *fixture)
		want       []string // the prefixes of the problems
		uncompared uint64
	}{
		"equal": {change: func(f *fixture) {
			f.state("account|1", 2, state(f.t, "Ada", 10, 10))
			f.state("account|1", 4, state(f.t, "Ada", 25, 10, 20, -5))
			f.state("account|1", 6, state(f.t, "Ada", 65, 10, 20, -5, 40))
		}},
		"at a fence": {change: func(f *fixture) {
			f.state("account|1", 5, state(f.t, "Ada", 25, 10, 20, -5))
		}},
		"wrong": {
			change: func(f *fixture) {
				f.state("account|1", 2, state(f.t, "Ada", 10, 10))
				f.state("account|1", 3, state(f.t, "Ida", 31, 10, 21))
				f.state("account|1", 4, state(f.t, "Ada", 25, 10, 20, -5))
				f.state("account|1", 6, state(f.t, "Ada", 66, 10, 20, -5, 40))
			},
			want: []string{
				`"account|1" at 3: the snapshot differs from the replayed state: Balance.USD, Last[1], Owner`,
				`"account|1" at 6: the snapshot differs from the replayed state: Balance.USD`,
			},
		},
		"at another number": {
			change: func(f *fixture) { f.state("account|1", 3, state(f.t, "Ada", 25, 10, 20, -5)) },
			want:   []string{`"account|1" at 3: the snapshot differs from the replayed state: Balance.USD, Last[2]`},
		},
		"undecodable": {
			change: func(f *fixture) {
				f.state("account|1", 2, []byte{0xc1})
				f.state("account|1", 3, state(f.t, "Ada", 30, 10, 20))
			},
			want: []string{`"account|1" at 2: the snapshot cannot be decoded`},
		},
		"deleted events": {
			change: func(f *fixture) {
				f.state("account|1", 2, state(f.t, "Ada", 10, 10))
				f.state("account|1", 3, state(f.t, "Ada", 30, 10, 20)) // the replay begins with this snapshot
				f.state("account|1", 4, state(f.t, "Ada", 24, 10, 20, -6))
				f.state("account|1", 6, state(f.t, "Ada", 65, 10, 20, -5, 40))
				if err := f.db.Journal().DeleteTo(f.t.Context(), "account|1", 3); err != nil {
					f.t.Fatal(err)
				}
			},
			want:       []string{`"account|1" at 4: the snapshot differs from the replayed state: Balance.USD, Last[2]`},
			uncompared: 2,
		},
		"all events deleted": {
			change: func(f *fixture) {
				f.state("account|1", 4, state(f.t, "Ada", 25, 10, 20, -5))
				f.state("account|1", 6, state(f.t, "Ada", 65, 10, 20, -5, 40))
				if err := f.db.Journal().DeleteTo(f.t.Context(), "account|1", 6); err != nil {
					f.t.Fatal(err)
				}
			},
			uncompared: 2,
		},
		"events that Apply rejects": {
			change: func(f *fixture) {
				f.event("account|2", deposited{Amount: 1}) // of an account that is not open
				f.state("account|2", 1, state(f.t, "Bob", 1, 1))
			},
			want:       []string{`"account|2" at 1: the events up to the snapshot cannot be replayed: fold "account|2": `},
			uncompared: 1,
		},
		"a type that is not part of the program": {change: func(f *fixture) {
			f.event("other|1", opened{Owner: "Ada"})
			f.state("other|1", 1, state(f.t, "Bob", 1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.event("account|1", opened{Owner: "Ada"})
			f.event("account|1", deposited{Amount: 10, Currency: "USD"})
			f.event("account|1", deposited{Amount: 20, Currency: "USD"})
			f.event("account|1", withdrawn{Amount: 5})
			f.record("account|1", journal.Event{}) // a fence
			f.event("account|1", deposited{Amount: 40, Currency: "USD"})
			c.change(f)
			report, err := operator.Verify(t.Context(), f.db.Journal(), operator.VerifyOptions{
				Snapshots: f.db.Snapshots(), Entities: []operator.Linked{operator.Entity(accountType())},
			})
			var got []string
			for _, p := range report.Problems {
				got = append(got, p.String())
			}
			if err != nil || !slices.EqualFunc(got, c.want, strings.HasPrefix) || report.Uncompared != c.uncompared {
				t.Errorf("problems %q, %d not compared, error %v, want %q, %d", got, report.Uncompared, err, c.want, c.uncompared)
			}
		})
	}
}

// Verify replays the events of an entity once, even if it has many snapshots.
func TestVerifyReplaysOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.event("account|1", opened{Owner: "Ada"})
	for n := range uint64(20) {
		f.event("account|1", withdrawn{Amount: 1})
		f.state("account|1", n+2, pack(t, map[string]any{"Owner": "Ada", "Balance": map[string]int64{"USD": -int64(n) - 1}, "Last": slices.Repeat([]int{-1}, int(n)+1)}))
	}
	typ := accountType()
	applied := 0
	typ.Apply = func(a *account, e event) {
		applied++
		a.apply(e)
	}
	report, err := operator.Verify(t.Context(), f.db.Journal(), operator.VerifyOptions{Snapshots: f.db.Snapshots(), Entities: []operator.Linked{operator.Entity(typ)}})
	if err != nil || report.Found() > 0 || report.Snapshots != 20 || applied != 21 {
		t.Errorf("report %+v, error %v, %d events applied, want 20 snapshots without problems and 21 events", report, err, applied)
	}
}
