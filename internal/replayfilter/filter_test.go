// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replayfilter_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/replayfilter"
	"github.com/refold-io/refold/journal"
)

var errUnreachable = fmt.Errorf("%w: connection refused", journal.ErrUnavailable)

// history returns the records of a script such as "A1 A2 B3": a writer and a number each. "!" is an
// error.
func history(script string) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		for word := range strings.FieldsSeq(script) {
			if word == "!" {
				yield(journal.Event{}, errUnreachable)
				return
			}
			e := journal.Event{Writer: strings.Trim(word[:1], "-"), Manifest: "m"}
			if _, err := fmt.Sscan(word[1:], &e.SequenceNr); err != nil {
				panic(err)
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// outcomeOf returns the script of the results of a replay.
func outcomeOf(records iter.Seq2[journal.Event, error]) (script string, failure error) {
	var words []string
	for e, err := range records {
		if failure != nil {
			words = append(words, "(more after the error)")
		}
		if err != nil {
			failure = err
			continue
		}
		words = append(words, fmt.Sprintf("%s%d", e.Writer, e.SequenceNr))
	}
	return strings.Join(words, " "), failure
}

func newFilter(t *testing.T, cfg journal.FilterConfig) *replayfilter.Filter {
	t.Helper()
	f, err := replayfilter.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFilter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		window, old int
		in          string
		repaired    string   // "" if nothing is wrong
		strict      string   // records that mode fail yields before the violation
		faults      []string // violations that are reported
		warned      []string // violations in mode warn, if different; this mode drops no records
	}{
		"one writer":                {in: "A1 A2 A3 A4"},
		"nothing":                   {in: ""},
		"one record split in two":   {in: "A1 A2 A2 A3"},
		"deleted or missing ones":   {in: "A5 A9"},
		"a clean change of writers": {in: "A1 A2 B3 C4 C5 D6"},
		"without writers":           {in: "-1 -2 A3 A4"},
		"backwards": {
			in: "A1 A2 A1 A3", repaired: "A1 A2 A3", strict: "A1 A2",
			faults: []string{"event 1 of writer \"A\" comes after number 2 of writer \"A\""},
		},
		"old writer": {
			in: "A1 A2 B3 A3 A4 B4", repaired: "A1 A2 B3 B4", strict: "A1 A2 B3",
			faults: []string{
				"event 3 of writer \"A\" comes from an old writer, after number 3 of writer \"B\"",
				"event 4 of writer \"A\" comes from an old writer, after number 3 of writer \"B\"",
			},
		},
		"the record without a writer is old too": {
			in: "-1 A2 -3 A3", repaired: "-1 A2 A3", strict: "-1 A2",
			faults: []string{"event 3 of writer \"\" comes from an old writer, after number 2 of writer \"A\""},
		},
		"overwritten": {
			in: "A1 A2 A3 A4 B3 B4 B5", repaired: "A1 A2 B3 B4 B5", strict: "A1 A2 A3 A4",
			faults: []string{
				"event 3 of writer \"A\" was overwritten by number 3 of writer \"B\"",
				"event 4 of writer \"A\" was overwritten by number 3 of writer \"B\"",
			},
		},
		"overwritten twice": {
			in: "A1 A2 A3 B3 C2 C3 C4", repaired: "A1 C2 C3 C4", strict: "A1 A2 A3",
			faults: []string{
				"event 3 of writer \"A\" was overwritten by number 3 of writer \"B\"",
				"event 2 of writer \"A\" was overwritten by number 2 of writer \"C\"",
				"event 3 of writer \"B\" was overwritten by number 2 of writer \"C\"",
			},
			warned: []string{
				"event 3 of writer \"A\" was overwritten by number 3 of writer \"B\"",
				"event 2 of writer \"A\" was overwritten by number 2 of writer \"C\"",
				"event 3 of writer \"A\" was overwritten by number 2 of writer \"C\"",
				"event 3 of writer \"B\" was overwritten by number 2 of writer \"C\"",
			},
		},
		"overwritten beyond the window": { // A1 to A3 have left the window
			window: 3, in: "A1 A2 A3 A4 A5 B2 B3", repaired: "A1 A2 A3 B2 B3", strict: "A1 A2 A3 A4 A5",
			faults: []string{
				"event 4 of writer \"A\" was overwritten by number 2 of writer \"B\"",
				"event 5 of writer \"A\" was overwritten by number 2 of writer \"B\"",
			},
		},
		"a window of one has no old record": {window: 1, in: "A1 A2 A3 B2 B3"},
		"a window of two has one old record": {
			window: 2, in: "A1 A2 A3 B2", repaired: "A1 A2 B2", strict: "A1 A2 A3",
			faults: []string{"event 3 of writer \"A\" was overwritten by number 2 of writer \"B\""},
		},
		"a writer that was forgotten": {old: 2, in: "A1 B2 C3 D4 A5"},
		"a writer that was not forgotten": {
			old: 2, in: "A1 B2 C3 D4 B5", repaired: "A1 B2 C3 D4", strict: "A1 B2 C3 D4",
			faults: []string{"event 5 of writer \"B\" comes from an old writer, after number 4 of writer \"D\""},
		},
		"ten writers are remembered": {
			in: "A1 B2 C3 D4 E5 F6 G7 H8 I9 J10 K11 A12", repaired: "A1 B2 C3 D4 E5 F6 G7 H8 I9 J10 K11",
			strict: "A1 B2 C3 D4 E5 F6 G7 H8 I9 J10 K11",
			faults: []string{"event 12 of writer \"A\" comes from an old writer, after number 11 of writer \"K\""},
		},
		"eleven writers are not remembered": {in: "A1 B2 C3 D4 E5 F6 G7 H8 I9 J10 K11 L12 A13"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := strings.ReplaceAll(strings.Join(strings.Fields(c.in), " "), "-", "")
			for mode, want := range map[journal.FilterMode]string{
				journal.FilterFail:               c.strict,
				journal.FilterRepairByDiscardOld: strings.ReplaceAll(c.repaired, "-", ""),
				journal.FilterWarn:               whole,
				journal.FilterOff:                whole,
			} {
				if c.faults == nil {
					want = whole
				}
				var faults []string
				f := newFilter(t, journal.FilterConfig{
					Mode: mode, WindowSize: c.window, MaxOldWriters: c.old,
					OnViolation: func(v *journal.ViolationError) {
						faults = append(faults, strings.TrimPrefix(v.Error(), `journal: replay filter: "id": `))
					},
				})
				got, err := outcomeOf(f.Apply("id", history(c.in)))
				if got != strings.ReplaceAll(want, "-", "") {
					t.Errorf("%v: yielded %q, want %q", mode, got, want)
				}
				switch mode {
				case journal.FilterFail:
					if failed := errors.Is(err, journal.ErrViolation); failed != (c.faults != nil) || len(faults) != min(1, len(c.faults)) {
						t.Errorf("%v: got %v, reported %q", mode, err, faults)
					}
				case journal.FilterOff:
					if err != nil || faults != nil {
						t.Errorf("%v: got %v, reported %q", mode, err, faults)
					}
				case journal.FilterRepairByDiscardOld, journal.FilterWarn:
					want := c.faults
					if mode == journal.FilterWarn && c.warned != nil {
						want = c.warned
					}
					if err != nil || !slices.Equal(faults, want) {
						t.Errorf("%v: got %v, reported\n%q\nwant\n%q", mode, err, faults, want)
					}
				}
			}
		})
	}
}

func TestFilterErrorNamesIDNumberAndWriters(t *testing.T) {
	t.Parallel()
	f := newFilter(t, journal.FilterConfig{})
	_, err := outcomeOf(f.Apply("account|42", history("A1 A2 B3 A4")))
	got, ok := errors.AsType[*journal.ViolationError](err)
	want := journal.ViolationError{
		ID: "account|42", SequenceNr: 4, Writer: "A",
		Detail: "comes from an old writer, after number", OtherSequenceNr: 3, OtherWriter: "B",
	}
	if !ok || *got != want {
		t.Errorf("got %+v, want %+v", err, want)
	}
}

// The records in the window are yielded before an error of the journal.
func TestFilterPassesErrorsOn(t *testing.T) {
	t.Parallel()
	for _, mode := range []journal.FilterMode{journal.FilterFail, journal.FilterRepairByDiscardOld, journal.FilterWarn, journal.FilterOff} {
		f := newFilter(t, journal.FilterConfig{Mode: mode})
		got, err := outcomeOf(f.Apply("id", history("A1 A2 ! A3")))
		if got != "A1 A2" || !errors.Is(err, errUnreachable) {
			t.Errorf("%v: yielded %q and %v", mode, got, err)
		}
	}
}

// When the loop ends at a record, during or after the window, the iteration over the journal ends
// too.
func TestFilterStopsWithItsLoop(t *testing.T) {
	t.Parallel()
	for _, mode := range []journal.FilterMode{journal.FilterFail, journal.FilterRepairByDiscardOld, journal.FilterWarn, journal.FilterOff} {
		for stop := 1; stop <= 6; stop++ {
			f := newFilter(t, journal.FilterConfig{Mode: mode, WindowSize: 3})
			seen := 0
			for e, err := range f.Apply("id", history("A1 A2 A3 A4 A5 A6")) {
				seen++
				if err != nil || e.SequenceNr != uint64(seen) {
					t.Fatalf("%v: yielded record %d and %v, want record %d", mode, e.SequenceNr, err, seen)
				}
				if seen == stop {
					break
				}
			}
		}
	}
}

// TestFilterFailDoesNotDelay checks that the default mode yields each record of a correct history
// at once.
func TestFilterFailDoesNotDelay(t *testing.T) {
	t.Parallel()
	f := newFilter(t, journal.FilterConfig{})
	read := 0
	records := func(yield func(journal.Event, error) bool) {
		for e, err := range history("A1 A2 A3") {
			read++
			if !yield(e, err) {
				return
			}
		}
	}
	seen := 0
	for _, err := range f.Apply("id", records) {
		if seen++; seen != read || err != nil {
			t.Fatalf("record %d was yielded after %d records were read, want %[1]d", seen, read)
		}
	}
}

func TestFilterIsReusable(t *testing.T) {
	t.Parallel()
	for _, mode := range []journal.FilterMode{journal.FilterFail, journal.FilterWarn, journal.FilterRepairByDiscardOld} {
		f := newFilter(t, journal.FilterConfig{Mode: mode})
		records := f.Apply("id", history("A1 B2"))
		for range 2 {
			if got, err := outcomeOf(records); got != "A1 B2" || err != nil {
				t.Errorf("%v: yielded %q and %v", mode, got, err)
			}
		}
	}
}

func TestFilterConfigNamesEachMistake(t *testing.T) {
	t.Parallel()
	_, err := replayfilter.New(journal.FilterConfig{Mode: 9, WindowSize: -1, MaxOldWriters: -1})
	if !errors.Is(err, journal.ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	for _, field := range []string{"Mode is FilterMode(9)", "WindowSize", "MaxOldWriters"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("the error is %q, want one that names %s", err, field)
		}
	}
}

func TestFilterModesHaveNames(t *testing.T) {
	t.Parallel()
	for mode, want := range map[journal.FilterMode]string{
		journal.FilterFail: "fail", journal.FilterRepairByDiscardOld: "repair-by-discard-old",
		journal.FilterWarn: "warn", journal.FilterOff: "off",
	} {
		if mode.String() != want {
			t.Errorf("got %q, want %q", mode, want)
		}
	}
}

// BenchmarkFilter measures the replay of the history of one writer.
func BenchmarkFilter(b *testing.B) {
	events := make([]journal.Event, 1_000)
	for i := range events {
		events[i] = journal.Event{SequenceNr: uint64(i + 1), Writer: "4f77462f627e223c", Manifest: "m"}
	}
	records := func(yield func(journal.Event, error) bool) {
		for i := range events {
			if !yield(events[i], nil) {
				return
			}
		}
	}
	for _, mode := range []journal.FilterMode{journal.FilterOff, journal.FilterFail, journal.FilterWarn, journal.FilterRepairByDiscardOld} {
		b.Run(mode.String(), func(b *testing.B) {
			f, err := replayfilter.New(journal.FilterConfig{Mode: mode})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range f.Apply("id", records) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
		})
	}
}
