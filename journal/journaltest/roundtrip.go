// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"strings"
	"time"

	"github.com/refold-io/refold/journal"
)

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
		out = append(out, check{name: c.name, rule: "every value of a field comes back, but nil and empty are the same", run: func(f *fixture) {
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

// roundTripWriter has writers of many kinds. Append takes the writer from the
// write, whatever the events say.
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
