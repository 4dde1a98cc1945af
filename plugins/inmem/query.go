// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/refold-io/refold/journal"
)

// offsetPrefix tells the offsets of this journal from those of others.
const offsetPrefix = "mem-"

// offset returns the position behind the first n events.
func offset(n uint64) journal.Offset {
	var b [len(offsetPrefix) + 20]byte
	return journal.Offset(strconv.AppendUint(append(b[:0], offsetPrefix...), n, 10))
}

// position returns how many events lie before an offset.
func position(o journal.Offset) (uint64, error) {
	if o == "" {
		return 0, nil
	}
	digits, _ := strings.CutPrefix(string(o), offsetPrefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || offset(n) != o {
		return 0, fmt.Errorf("%w: %.64q", journal.ErrOffset, o)
	}
	return n, nil
}

// Query implements journal.Querier. An event can be read as soon as its append
// has returned. A page takes no more than a look at 1,000 events, whatever it
// finds.
func (j *Journal) Query(ctx context.Context, q journal.Criteria, after journal.Offset) (journal.Page, error) {
	if err := q.Check(); err != nil {
		return journal.Page{}, fmt.Errorf("inmem: query: %w", err)
	}
	from, err := j.lockAt(ctx, after)
	if err != nil {
		return journal.Page{}, fmt.Errorf("inmem: query: %w", err)
	}
	hits, next := j.order.scan(q, from)
	more := next < j.order.end
	j.mu.Unlock()

	p := journal.Page{Next: offset(next), More: more}
	if len(hits) > 0 {
		p.Events = make([]journal.Envelope, len(hits))
	}
	for i := range hits {
		h := &hits[i]
		p.Events[i] = journal.Envelope{Event: h.record.event(h.seqNr), ID: h.id, Offset: offset(h.at)}
	}
	return p, nil
}

// End implements journal.Querier.
func (j *Journal) End(ctx context.Context) (journal.Offset, error) {
	if _, err := j.lockAt(ctx, ""); err != nil {
		return "", fmt.Errorf("inmem: end: %w", err)
	}
	defer j.mu.Unlock()
	return offset(j.order.end), nil
}

// Await implements journal.Querier. It returns nil only when there is an event
// behind the position.
func (j *Journal) Await(ctx context.Context, after journal.Offset) error {
	for {
		from, err := j.lockAt(ctx, after)
		if err != nil {
			return fmt.Errorf("inmem: await: %w", err)
		}
		if from < j.order.end {
			j.mu.Unlock()
			return nil
		}
		if j.news == nil {
			j.news = make(chan struct{})
		}
		news := j.news
		j.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done(): // the next round says so
		}
	}
}

// lockAt returns the position that an offset stands for with the lock held, or
// an error without it.
func (j *Journal) lockAt(ctx context.Context, after journal.Offset) (uint64, error) {
	from, err := position(after)
	if err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	j.mu.Lock()
	switch {
	case j.closed:
		err = journal.ErrClosed
	case from > j.order.end: // of another journal: what it holds by now would be missed
		err = fmt.Errorf("%w: %q lies behind the end, which is %q", journal.ErrOffset, after, offset(j.order.end))
	default:
		return from, nil
	}
	j.mu.Unlock()
	return 0, err
}

// tell wakes those who wait for news. It is called with the lock held.
func (j *Journal) tell() {
	if j.news != nil {
		close(j.news)
		j.news = nil
	}
}
