// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"
	"fmt"
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
		{"InvalidIDs", "an ID that CheckID refuses is refused by every method", base, func(f *fixture) {
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
				if errs[0] != nil || errs[2] != nil {
					f.Errorf("the neighbours of a write to %.20q: %v and %v", id, errs[0], errs[2])
				}
				f.wantHistory(before.ID, 0, before)
				f.wantHistory(after.ID, 0, after)

				events, err := f.collect(f.j.Replay(f.ctx, id, 1, maxSeq), 0)
				if !errors.Is(err, journal.ErrInvalid) || len(events) > 0 {
					f.Errorf("Replay of %.20q yields %d events and %v, want ErrInvalid", id, len(events), err)
				}
				if n, err := f.j.HighestSequenceNr(f.ctx, id); !errors.Is(err, journal.ErrInvalid) || n != 0 {
					f.Errorf("HighestSequenceNr of %.20q is %d and %v, want ErrInvalid", id, n, err)
				}
				if err := f.j.DeleteTo(f.ctx, id, 1); !errors.Is(err, journal.ErrInvalid) {
					f.Errorf("DeleteTo of %.20q: %v, want ErrInvalid", id, err)
				}
			}
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
				f.Errorf("Config.MaxPayload is %d, an event may have 1 MiB", f.cfg.MaxPayload)
			}
			mib, largest := write("1 MiB", "w", 0, 1), write("largest", "w", 0, 1)
			mib.Events[0].Payload = pattern(1<<20, 1)
			largest.Events[0].Payload = pattern(f.cfg.MaxPayload, 2)
			f.store(mib, largest)
			f.wantHistory(mib.ID, 0, mib)
			f.wantHistory(largest.ID, 0, largest)
		}},
		{"SizeOversizedPayload", "a larger payload is rejected, and its neighbours are stored", base, func(f *fixture) {
			// This is TCK 19 for journals.
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
		f.Errorf("the write after an oversized one of its ID: %v, want ErrSkipped", errs[2])
	}
	if errs[0] != nil || errs[3] != nil {
		f.Errorf("the neighbours of an oversized write: %v and %v", errs[0], errs[3])
	}
	f.wantHistory(before.ID, 0, before)
	f.wantHistory(after.ID, 0, after)
	f.wantHistory(large.ID, 0)
	f.store(fits)
	f.wantHistory(large.ID, 0, fits)
}

// roundTripChecks store odd values of each field of an event and read them back.
func roundTripChecks() []check {
	var out []check
	for _, c := range []struct {
		name string
		set  []func(e *journal.Event) // one event each
	}{
		{"RoundTripPayload", []func(e *journal.Event){
			func(e *journal.Event) { e.Payload = nil },
			func(e *journal.Event) { e.Payload = []byte{} },
			func(e *journal.Event) { e.Payload = []byte{0} },
			func(e *journal.Event) { e.Payload = []byte("it's \"quoted\" \\ \r\n\t") },
			func(e *journal.Event) { e.Payload = everyByte() },
			func(e *journal.Event) { e.Payload = []byte("\xff\xfe not UTF-8") },
			func(e *journal.Event) { e.Payload = make([]byte, 4096) },
			func(e *journal.Event) { e.Payload = pattern(65_537, 3) },
		}},
		{"RoundTripMetadata", []func(e *journal.Event){
			func(e *journal.Event) { e.Metadata = nil },
			func(e *journal.Event) { e.Metadata = []byte{} },
			func(e *journal.Event) { e.Metadata = []byte{0} },
			func(e *journal.Event) { e.Metadata = everyByte() },
			func(e *journal.Event) { e.Metadata, e.Payload = pattern(5000, 4), nil },
		}},
		{"RoundTripManifest", []func(e *journal.Event){
			func(e *journal.Event) { e.Manifest = "m" },
			func(e *journal.Event) { e.Manifest = "deposited;v=2|%/'\"\\ \n" },
			func(e *journal.Event) { e.Manifest = "預金 ✓ é e\u0301" },
			func(e *journal.Event) { e.Manifest = strings.Repeat("long", 100) },
		}},
		{"RoundTripTags", []func(e *journal.Event){
			func(e *journal.Event) { e.Tags = nil },
			func(e *journal.Event) { e.Tags = []string{} },
			func(e *journal.Event) { e.Tags = []string{"one"} },
			func(e *journal.Event) { e.Tags = []string{"z", "a", "m"} },
			func(e *journal.Event) {
				e.Tags = []string{"with blank", "a,b", "{c}", "NULL", `"q"\`, "|", "標籤", "a", "A"}
			},
			func(e *journal.Event) { e.Tags = []string{strings.Repeat("tag", 60)} },
		}},
		{"RoundTripTime", []func(e *journal.Event){
			func(e *journal.Event) { e.Time = time.Time{} },
			func(e *journal.Event) { e.Time = time.UnixMicro(-1).UTC() },
			func(e *journal.Event) { e.Time = time.Unix(0, 0).UTC() },
			func(e *journal.Event) { e.Time = time.UnixMicro(1).UTC() },
			func(e *journal.Event) { e.Time = at(1).Add(999_999 * time.Microsecond) },
			func(e *journal.Event) { e.Time = at(1).Add(time.Second) },
			func(e *journal.Event) { e.Time = at(1).Add(time.Second) },
			func(e *journal.Event) { e.Time = time.Date(9999, time.December, 31, 23, 59, 59, 999_999_000, time.UTC) },
		}},
	} {
		out = append(out, check{name: c.name, rule: "every value of a field is returned unchanged; nil and empty are equal", run: func(f *fixture) {
			w := write("round trip", "w", 0, len(c.set))
			for i, set := range c.set {
				set(&w.Events[i])
			}
			f.store(w)
			f.wantHistory(w.ID, 0, w)
		}})
	}
	return append(out, check{name: "RoundTripWriter", rule: "a record has the writer of its Write", run: roundTripWriter})
}

// roundTripWriter has writers of many kinds. Append uses the writer of the write and ignores that
// of the events.
func roundTripWriter(f *fixture) {
	const id = "writers"
	var writes []journal.Write
	for i, writer := range []string{"node-1:2552/1234567890", "", "作者 '\"\\", strings.Repeat("w", 200), "node-1:2552/1234567891"} {
		w := write(id, writer, uint64(2*i), 2)
		w.Events[1].Writer = "somebody else"
		writes = append(writes, w)
	}
	f.store(writes...)
	f.wantHistory(id, 0, writes...)
}

func everyByte() []byte {
	out := make([]byte, 256)
	for i := range out {
		out[i] = byte(i)
	}
	return out
}
