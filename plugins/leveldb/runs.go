// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"

	"github.com/refold-io/refold/journal"
)

// maxGroup is how many events a group holds at most. It bounds what a page has
// to read again when it begins in the middle of a group.
const maxGroup = 4096

// run is some events of one persistence ID that stand side by side in the order.
type run struct {
	index  uint64 // in the group, of the first of them, from 0
	number uint64 // of the persistence ID
	first  uint64 // the sequence number of the first of them
	count  uint64
}

// end is the index behind the run.
func (r run) end() uint64 { return r.index + r.count }

// last is the sequence number of the last of them.
func (r run) last() uint64 { return r.first + r.count - 1 }

// without returns the run without its first n events.
func (r run) without(n uint64) run {
	n = min(n, r.count)
	return run{index: r.index + n, number: r.number, first: r.first + n, count: r.count - n}
}

// append appends a run. In the record of a tag the events between it and the one
// before are counted too; in that of a group there are none.
func (r run) append(b []byte, tag bool, behind uint64) []byte {
	if tag {
		b = binary.AppendUvarint(b, r.index-behind)
	}
	b = binary.AppendUvarint(b, r.number)
	b = binary.AppendUvarint(b, r.first)
	return binary.AppendUvarint(b, r.count)
}

// runReader reads the value of a group or of a tag, version 1: the version in a
// byte, then runs, at least one. A run is varints:
//
//	skipped   events of the group before it that do not have the tag; only of a tag
//	number    of the persistence ID
//	first     sequence number
//	count     of events
//
// It allocates nothing, whatever it reads.
type runReader struct {
	rest []byte
	tag  bool
	run  run
	err  error
}

func readRuns(b []byte, tag bool) runReader {
	r := runReader{tag: tag}
	if r.rest, r.err = cutVersion(b); r.err == nil && len(r.rest) == 0 {
		r.err = errShort
	}
	return r
}

// next reads the next run. It returns false at the end and when err is set.
func (r *runReader) next() bool {
	if r.err != nil || len(r.rest) == 0 {
		return false
	}
	at := r.run.end()
	if r.tag {
		skipped := r.number()
		if skipped > maxGroup {
			r.err = errMalformed
		}
		at += skipped
	}
	r.run = run{index: at, number: r.number(), first: r.number(), count: r.number()}
	if n := r.run; r.err == nil &&
		(n.number == 0 || n.number > maxNumber || n.count == 0 || n.count > maxGroup || n.end() > maxGroup ||
			n.first == 0 || n.first > journal.MaxSequenceNr-n.count+1) {
		r.err = errMalformed
	}
	return r.err == nil
}

func (r *runReader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.err, r.rest = errShort, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// countRuns returns how many events a group has.
func countRuns(value []byte) (uint64, error) {
	r := readRuns(value, false)
	for r.next() {
	}
	return r.run.end(), r.err
}
