// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/journal"
)

// read hands over what is behind a position, one page ahead of the worker. It
// ends with ctx, with an error of the journal, or, if it is to read once, where
// the end was when it began.
func (w *worker[E]) read(ctx context.Context, after journal.Offset, out chan<- page[E]) error {
	query := w.p.cfg.Criteria
	query.Slices = w.slices
	d := decoder[E]{events: w.p.cfg.Events}
	var end journal.Offset
	if w.once {
		var err error
		w.figures.asks()
		end, err = w.p.querier.End(ctx)
		w.figures.answered(err)
		if err != nil {
			return fmt.Errorf("projection %q: find the end of the journal: %w", w.p.cfg.Name, err)
		}
	}
	for number, told := 0, false; ; {
		w.figures.asks()
		found, err := w.p.querier.Query(ctx, query, after)
		w.figures.answered(err)
		if err != nil {
			return fmt.Errorf("projection %q: read events behind %q: %w", w.p.cfg.Name, after, err)
		}
		if len(found.Events) > 0 || found.Next != after || !found.More && !told {
			p := d.page(found)
			number++
			p.number = number
			w.figures.ahead(p.number, p.first)
			select {
			case out <- p:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			after, told = found.Next, p.end
		}
		if w.once && (!found.More || after.Compare(end) >= 0) {
			return nil
		}
		if found.More {
			continue
		}
		if err := w.p.querier.Await(ctx, after); err != nil {
			return fmt.Errorf("projection %q: wait for events behind %q: %w", w.p.cfg.Name, after, err)
		}
	}
}
