// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"strings"

	"github.com/refold-io/refold/snapshot"
)

func idCases() []Case {
	return []Case{
		{
			Name: "IDsAreApart",
			Rule: "what is done to one ID shows in no other, though one is a part of the other",
			check: func(p *probe) {
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
			},
		},
		{
			Name: "OddIDs",
			Rule: "any valid UTF-8 of 1 to 512 bytes without NUL is an ID, and is told from any other",
			check: func(p *probe) {
				ids := p.oddIDs()
				for i, id := range ids {
					p.save(numbered(id, uint64(i+1)))
				}
				for i, id := range ids {
					n := uint64(i + 1)
					p.expect(snapshot.Latest(), numbered(id, n))
					p.expectList(id, snapshot.Latest(), n)
					p.delete(id, snapshot.Latest())
					p.expectNone(id, snapshot.Latest())
				}
			},
		},
		{
			Name: "LongIDs",
			Rule: "IDs of 512 bytes are told apart by their last byte",
			check: func(p *probe) {
				stem := p.id + strings.Repeat("é", (512-len(p.id))/2)
				stem = strings.ToValidUTF8(stem[:511], "")
				stem += strings.Repeat("-", 511-len(stem))
				p.save(numbered(stem+"a", 1))
				p.save(numbered(stem+"b", 2))
				p.expect(snapshot.Latest(), numbered(stem+"a", 1))
				p.expect(snapshot.Latest(), numbered(stem+"b", 2))
			},
		},
	}
}

// oddIDs returns IDs that file systems, patterns, keys and statements trip over.
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
