// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/journal"
)

// missingRecords returns the number of records that the target lacks. It returns an error unless
// the target holds a beginning of the source.
func (c *copier) missingRecords(ctx context.Context, id string) (missing uint64, err error) {
	to, err := c.to.Journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("target: %w", err)
	}
	from, err := c.from.Journal.HighestSequenceNr(ctx, id)
	switch {
	case err != nil:
		return 0, fmt.Errorf("source: %w", err)
	case from == 0:
		return 0, different(id, 0, "the source has no such persistence ID")
	case to > from:
		return 0, different(id, from+1, fmt.Sprintf("the source ends at %d, the target at %d", from, to))
	case to > 0:
		err = c.same(ctx, id, to)
	}
	return from - to, err
}

// same returns an error unless the target holds the same records as the source up to highest, the
// highest number of the target. It skips records that the source has deleted in the meantime, but
// then requires at least one record that both sides have.
func (c *copier) same(ctx context.Context, id string, highest uint64) error {
	next, stop := iter.Pull2(c.from.Journal.Replay(ctx, id, 1, highest))
	defer stop()
	s, failed, ok := next()
	var gone, common uint64 // the first record that only the target has; the number of records that both have
	for t, err := range c.to.Journal.Replay(ctx, id, 1, highest) {
		switch {
		case err != nil:
			return fmt.Errorf("target: %w", err)
		case failed != nil:
			return fmt.Errorf("source: %w", failed)
		case common == 0 && (!ok || t.SequenceNr < s.SequenceNr):
			if gone == 0 && !isPlaceholder(&t) {
				gone = t.SequenceNr
			}
			continue
		case !ok || t.SequenceNr < s.SequenceNr:
			return different(id, t.SequenceNr, "the source does not have this record")
		case s.SequenceNr < t.SequenceNr:
			return different(id, s.SequenceNr, "the target has deleted this record, the source has not")
		}
		if field := unequal(&s, &t); field != "" {
			return different(id, t.SequenceNr, "the record differs from the source in its "+field)
		}
		common++
		s, failed, ok = next()
	}
	switch {
	case failed != nil:
		return fmt.Errorf("source: %w", failed)
	case ok:
		return different(id, s.SequenceNr, "the target has deleted this record, the source has not")
	case gone > 0 && common == 0:
		return different(id, gone, "the source has deleted this record, so it cannot be compared: copy to an empty target")
	}
	return nil
}

// unequal returns the name of the field in which two records with the same number differ, or "".
func unequal(a, b *journal.Event) string {
	switch {
	case !a.Time.Equal(b.Time):
		return "time"
	case a.Writer != b.Writer:
		return "writer"
	case a.Manifest != b.Manifest:
		return "manifest"
	case !bytes.Equal(a.Payload, b.Payload):
		return "payload"
	case !slices.Equal(a.Tags, b.Tags):
		return "tags"
	case !bytes.Equal(a.Metadata, b.Metadata):
		return "metadata"
	}
	return ""
}

type contents struct {
	highest, records, snapshots uint64
	digest                      Digest
}

func (c contents) String() string {
	return fmt.Sprintf("%s up to %d, %s, digest %.8s", count(c.records, "record"), c.highest, count(c.snapshots, "snapshot"), c.digest)
}

// digests describes the contents of an ID on both sides, up to the last record of the target.
type digests struct {
	from, to contents
	later    uint64 // number of records of the source after that record
	new      bool   // only the source has the ID
}

// followed bounds how often an ID is copied again because the source changed during the copy.
const followed = 3

// comparedAgain returns the contents of an ID on both sides. If the source is in use, it may have
// deleted records, or saved or deleted snapshots, after the ID was copied. Therefore comparedAgain
// copies the ID again if both sides differ. Contents that only the target has remain a difference.
func (c *copier) comparedAgain(ctx context.Context, id string) (d digests, err error) {
	for again := 0; ; again++ {
		d, err = c.digests(ctx, id)
		if err != nil || d.new || d.from == d.to || c.from.NoWriters || again == followed {
			return d, err
		}
		if _, err := c.copyOne(ctx, id); err != nil { // Copy has already reported the problems of copyOne
			return d, err
		}
	}
}

func (c *copier) digests(ctx context.Context, id string) (d digests, err error) {
	d.to.highest, err = c.to.Journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return d, fmt.Errorf("target: %w", err)
	}
	highest, err := c.from.Journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return d, fmt.Errorf("source: %w", err)
	}
	d.new, d.later = d.to.highest == 0, highest-min(highest, d.to.highest)
	d.from.highest = min(highest, d.to.highest)
	if d.new {
		return d, nil
	}
	if err := c.from.contents(ctx, id, &d.from); err != nil {
		return d, fmt.Errorf("source: %w", err)
	}
	if err := c.to.contents(ctx, id, &d.to); err != nil {
		return d, fmt.Errorf("target: %w", err)
	}
	return d, nil
}

// contents reads an ID up to its highest number.
func (s *Source) contents(ctx context.Context, id string, c *contents) error {
	d := inspect.NewDigester(id)
	for e, err := range s.Journal.Replay(ctx, id, 1, c.highest) {
		if err != nil {
			return err
		}
		c.records++
		d.Record(&e)
	}
	d.Highest(c.highest)
	for snap, err := range s.snapshots(ctx, id, c.highest) {
		if _, unreadable := errors.AsType[Problem](err); unreadable {
			continue
		}
		if err != nil {
			return err
		}
		c.snapshots++
		d.Snapshot(&snap)
	}
	c.digest = d.Sum()
	return nil
}
