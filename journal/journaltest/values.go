// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/journal"
)

func idChecks() []check {
	return []check{
		{"IDsAreApart", "IDs are compared bytewise, up to 512 bytes", base, func(f *fixture) {
			// Each ID has a history of a different length, and some lack its beginning.
			ids := oddIDs()
			writes := make([]journal.Write, len(ids))
			for i, id := range ids {
				writes[i] = write(id, fmt.Sprint("writer of ", i), 0, 1+i%5)
			}
			f.store(writes...)
			deleted := make([]int, len(ids))
			for i := range ids {
				if i%3 == 0 {
					deleted[i] = min(i%4, len(writes[i].Events))
					f.deleteTo(ids[i], uint64(deleted[i])) //nolint:gosec // small
				}
			}
			for i, id := range ids {
				f.wantHistory(id, deleted[i], writes[i])
			}
		}},
		{"InvalidIDs", "every method rejects an ID that CheckID rejects", base, func(f *fixture) {
			for i, id := range []string{
				"", " ", "\t\r\n", "\u00a0\u2003", "\x00", "a\x00b", "a\x00", "\xff", "a\xc3", "\xed\xa0\x80",
				strings.Repeat("x", journal.MaxIDLength+1), strings.Repeat("帳", journal.MaxIDLength/3+1),
			} {
				w := write(id, "w", 0, 1)
				before, after := write(fmt.Sprint("before ", i), "w", 0, 1), write(fmt.Sprint("after ", i), "w", 0, 1)
				errs := f.appendAll(f.ctx, before, w, after)
				f.wantRejected(errs[1], w)
				if !errors.Is(errs[1], journal.ErrInvalid) {
					f.Errorf("Append to %.20q returned %v, want a match of ErrInvalid too", id, errs[1])
				}
				f.wantStored(errs, 0, 2)
				f.wantHistory(before.ID, 0, before)
				f.wantHistory(after.ID, 0, after)
				f.wantFailures(id, journal.ErrInvalid)
			}
		}},
		{"InvalidNames", "a write is rejected if CheckWrite rejects its writer, a manifest or a tag", base, func(f *fixture) {
			tags := slices.Repeat([]string{strings.Repeat("t", 1024)}, 63)
			valid := write("valid names", "w", 0, 1)
			valid.Events[0].Tags = tags
			f.store(valid)
			f.wantHistory(valid.ID, 0, valid)
			for _, change := range []func(w *journal.Write, e *journal.Event){
				func(w *journal.Write, _ *journal.Event) { w.Writer = "a\xff" },
				func(_ *journal.Write, e *journal.Event) { e.Manifest = "a\x00" },
				func(_ *journal.Write, e *journal.Event) { e.Tags = []string{"valid", "\xed\xa0\x80"} },
				func(_ *journal.Write, e *journal.Event) { e.Tags = []string{"a\x00b"} },
				func(_ *journal.Write, e *journal.Event) { e.Tags = []string{tags[0] + "t"} },
				func(_ *journal.Write, e *journal.Event) { e.Tags = append(tags[:63:63], tags[0]) },
				func(_ *journal.Write, e *journal.Event) { e.Tags = slices.Repeat([]string{"t"}, 16<<10+1) },
			} {
				w := write("invalid names", "w", 0, 2)
				change(&w, &w.Events[1])
				f.wantRejected(f.append1(w), w)
			}
			f.wantHistory("invalid names", 0)
		}},
	}
}

// oddIDs returns valid persistence IDs that are easily mixed up with another.
func oddIDs() []string {
	return []string{
		"a", "A", "aa", "aaa", "a ", "a  ", " a", "\ta", "a\n", "a\x01", "a\x7f",
		"account|1", "account|10", "account|1|2", "account|", "|account", "|", "||", "account", "Account|1", "account-1", "account-1-2", "account_1", "account%1",
		"-", "--", "%", "%%", "%2F", "%7C", "/", "a/b", "a/../b", "../a", ".", "..", "a.b", "\\", "a\\b", "~", "*", "?", "a*", ":", "a:b", "#", "$$$a",
		"'", "''", "'; drop table events; --", "\"a\"", "`a`", "{a}", "[a]", "(a)", "$1", "@a", "NULL", "null", "true", "0", "1", "-1", "00", "1e3",
		"é", "e\u0301", "É", "ß", "ss", "ı", "i", "I", "İ", "K", "\u212a", "帳戶", "帳戶|1", "🏦", "🏦🏦", "\u202eabc", "\ufeffa", "a\u00a0", "\ufffd", "\U0010ffff",
		strings.Repeat("x", journal.MaxIDLength), strings.Repeat("x", journal.MaxIDLength-1), strings.Repeat("x", journal.MaxIDLength-1) + "y",
		strings.Repeat("帳", journal.MaxIDLength/3), strings.Repeat("é", journal.MaxIDLength/2), strings.Repeat("🏦", journal.MaxIDLength/4),
		strings.Repeat("%", journal.MaxIDLength),
	}
}

func sizeChecks() []check {
	return []check{
		{"SizeLargestPayload", "a payload of Config.MaxPayload bytes is stored", base, func(f *fixture) {
			if f.cfg.MaxPayload < 1<<20 {
				f.Errorf("Config.MaxPayload is %d, want at least 1 MiB", f.cfg.MaxPayload)
			}
			mib, largest := write("1 MiB", "w", 0, 1), write("largest", "w", 0, 1)
			mib.Events[0].Payload = pattern(1<<20, 1)
			largest.Events[0].Payload = pattern(f.cfg.MaxPayload, 2)
			f.store(mib, largest)
			f.wantHistory(mib.ID, 0, mib)
			f.wantHistory(largest.ID, 0, largest)
		}},
		{"SizeOversizedPayload", "a larger payload is rejected, and its neighbours are stored", base, func(f *fixture) {
			// This is check 19 of the TCK for journals.
			large := write("large", "w", 0, 1)
			large.Events[0].Payload = make([]byte, f.cfg.MaxPayload+1)
			f.wantOversized(large)
		}},
		{"SizeOversizedWrite", "a write of more than Config.MaxWrite bytes is rejected, and its neighbours are stored", sizes, func(f *fixture) {
			payload := make([]byte, f.cfg.MaxPayload)
			large := write("large", "w", 0, f.cfg.MaxWrite/f.cfg.MaxPayload+1)
			for i := range large.Events {
				large.Events[i].Payload = payload
			}
			f.wantOversized(large)
		}},
	}
}

// wantOversized appends a write that is too large between others.
func (f *fixture) wantOversized(large journal.Write) {
	f.Helper()
	before, after := write("before", "w", 0, 1), write("after", "w", 0, 1)
	behind, fits := write("large", "w", 1, 1), write("large", "w", 0, 1)
	errs := f.appendAll(f.ctx, before, large, behind, after)
	f.wantRejected(errs[1], large)
	if !errors.Is(errs[2], journal.ErrSkipped) {
		f.Errorf("the write after an oversized write of its ID: got %v, want ErrSkipped", errs[2])
	}
	f.wantStored(errs, 0, 3)
	f.wantHistory(before.ID, 0, before)
	f.wantHistory(after.ID, 0, after)
	f.wantHistory(large.ID, 0)
	f.store(fits)
	f.wantHistory(large.ID, 0, fits)
}

func roundTripChecks() []check {
	return []check{
		roundTrip("RoundTripPayload", func(e *journal.Event, v []byte) { e.Payload = v },
			nil, []byte{}, []byte{0}, []byte("it's \"quoted\" \\ \r\n\t"), everyByte(), []byte("\xff\xfe not UTF-8"), make([]byte, 4096), pattern(65_537, 3)),
		roundTrip("RoundTripMetadata", func(e *journal.Event, v []byte) {
			if e.Metadata = v; len(v) > 256 {
				e.Payload = nil
			}
		}, nil, []byte{}, []byte{0}, everyByte(), pattern(5000, 4)),
		roundTrip("RoundTripManifest", func(e *journal.Event, v string) { e.Manifest = v },
			"m", "deposited;v=2|%/'\"\\ \n", "預金 ✓ é e\u0301", strings.Repeat("long", 100)),
		roundTrip("RoundTripTags", func(e *journal.Event, v []string) { e.Tags = v },
			nil, []string{}, []string{"one"}, []string{"z", "a", "m"},
			[]string{"with blank", "a,b", "{c}", "NULL", `"q"\`, "|", "標籤", "a", "A"},
			[]string{strings.Repeat("tag", 60)}),
		roundTrip("RoundTripTime", func(e *journal.Event, v time.Time) { e.Time = v },
			time.Time{}, time.UnixMicro(-1).UTC(), time.Unix(0, 0).UTC(), time.UnixMicro(1).UTC(),
			at(1).Add(999_999*time.Microsecond), at(1).Add(time.Second), at(1).Add(time.Second),
			time.Date(9999, time.December, 31, 23, 59, 59, 999_999_000, time.UTC)),
		{"RoundTripWriter", "a record has the writer of its Write, not the Writer of the event", base, func(f *fixture) {
			const id = "writers"
			var writes []journal.Write
			for i, writer := range []string{"node-1:2552/1234567890", "", "作者 '\"\\", strings.Repeat("w", 200), "node-1:2552/1234567891"} {
				w := write(id, writer, uint64(2*i), 2)
				w.Events[1].Writer = "somebody else"
				writes = append(writes, w)
			}
			f.store(writes...)
			f.wantHistory(id, 0, writes...)
		}},
	}
}

// roundTrip returns a check that stores an event for each value of a field.
func roundTrip[T any](name string, set func(e *journal.Event, value T), values ...T) check {
	return check{name, "every value of a field is returned unchanged; nil and empty are equal", base, func(f *fixture) {
		w := write("round trip", "w", 0, len(values))
		for i, v := range values {
			set(&w.Events[i], v)
		}
		f.store(w)
		f.wantHistory(w.ID, 0, w)
	}}
}

func everyByte() []byte {
	out := make([]byte, 256)
	for i := range out {
		out[i] = byte(i)
	}
	return out
}
