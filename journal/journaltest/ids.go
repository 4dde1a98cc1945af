// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/refold-io/refold/journal"
)

func idChecks() []check {
	return []check{
		{name: "IDsAreApart", rule: "IDs are told apart byte by byte, up to 512 bytes", run: idsAreApart},
		{name: "InvalidIDs", rule: "an ID that CheckID refuses is refused by every method", run: invalidIDs},
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

// idsAreApart gives each ID a history of its own length and takes the beginning
// of some away.
func idsAreApart(f *fixture) {
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
}

// invalidIDs are refused by every method before anything happens.
func invalidIDs(f *fixture) {
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
}
