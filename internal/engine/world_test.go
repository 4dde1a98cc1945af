// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
)

// record is a stored record.
type record struct {
	name    string // of the event, "" for a fence
	writer  string
	deleted bool
}

// disk is a correct journal of one entity, with a snapshot that covers the deleted records.
type disk []record

var (
	errLost        = errors.New("lost")
	errUnavailable = fmt.Errorf("lost: %w", journal.ErrUnavailable)
)

// append stores a write if it expects the last stored sequence number.
func (d *disk) append(w journal.Write) error {
	if int(w.Expect) != len(*d) {
		return &journal.ConflictError{ID: w.ID, Expected: w.Expect, Highest: uint64(len(*d))}
	}
	for i, e := range w.Events {
		if e.SequenceNr != w.Expect+1+uint64(i) {
			return fmt.Errorf("%w: number %d follows %d", journal.ErrInvalid, e.SequenceNr, w.Expect+uint64(i))
		}
		*d = append(*d, record{name: string(e.Payload), writer: w.Writer})
	}
	return nil
}

// deleteTo deletes the records up to a sequence number.
func (d disk) deleteTo(nr int) {
	for i := range d[:nr] {
		d[i].deleted = true
	}
}

// probe returns the result of a probe for the events of a writer from a sequence number on.
func (d disk) probe(from uint64, writer string) engine.Input {
	in := engine.Input{Kind: engine.Probed, LastNr: from - 1}
	for nr := from; nr <= uint64(len(d)); nr++ {
		switch r := d[nr-1]; {
		case r.deleted:
			continue
		case r.writer != writer:
			in.Next = engine.ForeignRecord
		case r.name == "":
			in.Next = engine.OwnFence
		default:
			in.LastNr = nr
			continue
		}
		if nr > in.LastNr+1 {
			in.DeletedTo = nr - 1
		}
		return in
	}
	if in.LastNr < from && uint64(len(d)) >= from {
		in.DeletedTo = uint64(len(d))
	}
	return in
}

// events returns the names of the events that an aggregate sees.
func (d disk) events() []string {
	var names []string
	for _, r := range d {
		if r.name != "" {
			names = append(names, r.name)
		}
	}
	return names
}
