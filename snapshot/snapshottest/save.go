// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"bytes"
	"slices"
	"strings"

	"github.com/refold-io/refold/snapshot"
)

func saveChecks() []check {
	return []check{
		{"Replace", "a save at a used number replaces that snapshot, including its time, manifest and payload", always, func(p *probe) {
			p.baseline()
			s := numbered(p.id, 15)
			s.Time, s.Manifest, s.Payload = at(20), "modified", []byte("s")
			p.save(s)
			p.expect(snapshot.UpTo(15), s)
			c := snapshot.Latest()
			c.MaxTime = at(19)
			p.expectNumber(c, 14)
			p.delete(p.id, snapshot.At(15))
			p.expectList(p.id, snapshot.Latest(), 14, 13, 12, 11)
		}},
		{"TenThousandBytes", "a payload of 10,000 bytes is stored", always, func(p *probe) {
			p.roundTrip(bytes.Repeat([]byte("0123456789"), 1000))
		}},
		{"Megabytes", "a payload as large as the store documents is stored", always, func(p *probe) {
			payload := make([]byte, p.cfg.MaxPayload)
			for i := range payload {
				payload[i] = byte(i * 7 >> 3)
			}
			p.roundTrip(payload)
		}},
		{"Empty", "a snapshot without payload and without manifest is stored", always, func(p *probe) {
			p.roundTrip(nil)
			p.roundTrip([]byte{})
		}},
		{"AllBytes", "a payload is stored unchanged, with any bytes", always, func(p *probe) {
			var payload []byte
			for i := range 256 {
				payload = append(payload, byte(i), 0, '\r', '\n', byte(255-i))
			}
			p.roundTrip(payload)
		}},
		{"LoadedPayloadIsKept", "a loaded payload does not change after later calls", always, func(p *probe) {
			p.baseline()
			first, err := p.store.Load(p.Context(), p.id, snapshot.At(11))
			if err != nil {
				p.Fatalf("Load: %v", err)
			}
			before := slices.Clone(first.Payload)
			for n := uint64(11); n <= 15; n++ {
				p.expectNumber(snapshot.At(n), n)
				s := numbered(p.id, n)
				s.Payload = bytes.Repeat([]byte("x"), len(s.Payload))
				p.save(s)
			}
			p.delete(p.id, snapshot.Criteria{All: true})
			if !bytes.Equal(first.Payload, before) {
				p.Errorf("a loaded payload changed to %q, want %q", first.Payload, before)
			}
		}},
	}
}

// roundTrip saves a payload under its own ID at sequence number 100 and loads it.
func (p *probe) roundTrip(payload []byte) {
	p.Helper()
	s := numbered(p.id, 100)
	s.Payload = payload
	if len(payload) == 0 {
		s.Manifest = ""
	}
	p.save(s)
	p.expect(snapshot.Latest(), s)
}

func deleteChecks() []check {
	return []check{
		{"DeleteOne", "deleting at a number deletes that snapshot and no other", always, func(p *probe) {
			p.baseline()
			p.delete(p.id, snapshot.At(13))
			p.expectNumber(snapshot.UpTo(13), 12)
			p.expectList(p.id, snapshot.Latest(), 15, 14, 12, 11)
		}},
		{"DeleteMatches", "deleting by criteria deletes all that match", always, func(p *probe) {
			p.baseline()
			c := snapshot.UpTo(13)
			c.MaxTime = at(13)
			p.delete(p.id, c)
			p.expectNone(p.id, c)
			c = snapshot.UpTo(14)
			c.MaxTime = at(14)
			p.expectNumber(c, 14)
			p.expectList(p.id, snapshot.Latest(), 15, 14)
		}},
		{"DeleteKeepsYounger", "deleting up to a time keeps a snapshot that is a microsecond later, even if its number matches", always, func(p *probe) {
			p.baseline()
			c := snapshot.UpTo(14)
			c.MaxTime = at(14).Add(-1000)
			p.delete(p.id, c)
			c.MaxTime = at(14)
			p.expectNumber(c, 14)
			p.expectList(p.id, snapshot.Latest(), 15, 14)
		}},
		{"DeleteKeepsBelow", "the lower bounds also apply to a deletion", always, func(p *probe) {
			p.baseline()
			c := snapshot.Latest()
			c.MinSequenceNr = 14
			p.delete(p.id, c)
			p.expectList(p.id, snapshot.Latest(), 13, 12, 11)
			c = snapshot.Latest()
			c.MinTime = at(12)
			p.delete(p.id, c)
			p.expectList(p.id, snapshot.Latest(), 11)
		}},
		{"DeleteTwice", "deleting a missing snapshot succeeds, and a deleted one can be saved again", always, func(p *probe) {
			p.delete(p.id, snapshot.Criteria{All: true})
			p.baseline()
			p.delete(p.id, snapshot.Criteria{All: true})
			p.delete(p.id, snapshot.Criteria{All: true})
			p.expectNone(p.id, snapshot.Latest())
			p.save(numbered(p.id, 12))
			p.expectNumber(snapshot.Latest(), 12)
		}},
	}
}

func idChecks() []check {
	return []check{
		{"IDsAreApart", "calls for one ID do not affect another, even if one contains the other", always, func(p *probe) {
			ids := []string{p.id, p.id + "-1", p.id + "-11", p.id + "|x", "x" + p.id, p.id[:len(p.id)-1]}
			for i, id := range ids {
				for n := range uint64(i + 1) {
					p.save(numbered(id, 11+n))
				}
			}
			for i, id := range ids {
				highest := uint64(11 + i)
				p.expect(snapshot.Latest(), numbered(id, highest))
				p.delete(id, snapshot.At(highest))
			}
			p.expectNone(p.id, snapshot.Latest())
			for i, id := range ids[1:] {
				p.expect(snapshot.Latest(), numbered(id, uint64(11+i)))
			}
		}},
		{"OddIDs", "any valid UTF-8 of 1 to 512 bytes without NUL is a distinct ID", always, func(p *probe) {
			ids := p.oddIDs()
			for i, id := range ids {
				p.save(numbered(id, uint64(i+1)))
			}
			for i, id := range ids {
				n := uint64(i + 1)
				p.expect(snapshot.Latest(), numbered(id, n))
				p.expectList(id, snapshot.Latest(), n)
				p.delete(id, snapshot.Criteria{All: true})
				p.expectNone(id, snapshot.Latest())
			}
		}},
		{"LongIDs", "IDs of 512 bytes that differ in the last byte are distinct", always, func(p *probe) {
			stem := p.id + strings.Repeat("é", (512-len(p.id))/2)
			stem = strings.ToValidUTF8(stem[:511], "")
			stem += strings.Repeat("-", 511-len(stem))
			p.save(numbered(stem+"a", 1))
			p.save(numbered(stem+"b", 2))
			p.expect(snapshot.Latest(), numbered(stem+"a", 1))
			p.expect(snapshot.Latest(), numbered(stem+"b", 2))
		}},
	}
}

// oddIDs returns IDs that file systems, patterns, keys and statements may mishandle.
func (p *probe) oddIDs() []string {
	var ids []string
	for _, odd := range []string{
		"-", "_", "%", "*", "?", "[a]", "a-b", "a_b", "a%b", "%2F", "a/b", "/", "//", `\`, `a\b`, ".", "..", "../../x", "./a",
		"a", "A", "á", "a\u0301", "ß", "SS", "ſ", "İ", " ", "a ", " a", "a  ", "\t", "\n", "\r\n", "\x01", "\x7f", "|", "a|b|c", "a:b", "con", "NUL.txt",
		"'", `"`, "';--", "$1", "${HOME}", "`id`", "<a>", "&amp;", "\u202e", "\ufeff", "\uffff", "日本語", "🏦", "é.snapshot", "é.partial", "~", ".hidden",
	} {
		ids = append(ids, p.id+odd, odd+p.id)
	}
	return ids
}
