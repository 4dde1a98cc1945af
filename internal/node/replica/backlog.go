// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/internal/replication"
)

// Backlog is what waits to be written to disk: of each key the last record. The zero value is
// empty. It is not safe for concurrent use.
type Backlog struct {
	order []string // in which keys came first, those that were taken included
	byKey map[string]*waiting
}

// waiting is the record of a key, with all who wait for it or for one that it has replaced.
type waiting struct {
	data []byte
	nrs  []uint64
}

// Writing is some records that are written in one go. All the numbers are answered with what
// becomes of them.
type Writing struct {
	Records []durable.Record
	Nrs     []uint64
}

// Add takes records to be written.
func (b *Backlog) Add(stores []replication.Store) {
	for i := range stores {
		s := &stores[i]
		w := b.waiting(s.Key)
		w.data = s.Data
		w.nrs = append(w.nrs, s.Nr)
	}
}

func (b *Backlog) waiting(key string) *waiting {
	w := b.byKey[key]
	if w != nil {
		return w
	}
	if b.byKey == nil {
		b.byKey = map[string]*waiting{}
	}
	w = new(waiting)
	b.byKey[key] = w
	b.order = append(b.order, key)
	return w
}

// Len returns how many records wait.
func (b *Backlog) Len() int { return len(b.byKey) }

// Take returns what has waited longest, up to as many records and bytes, and at least one
// record if there is one.
func (b *Backlog) Take(records, bytes int) Writing {
	var out Writing
	taken := 0
	for _, key := range b.order {
		w := b.byKey[key]
		if len(out.Records) > 0 && (len(out.Records) == records || len(key)+len(w.data) > bytes) {
			break
		}
		taken++
		bytes -= len(key) + len(w.data)
		out.Records = append(out.Records, durable.Record{Key: key, Data: w.data})
		out.Nrs = append(out.Nrs, w.nrs...)
		delete(b.byKey, key)
	}
	if b.order = b.order[taken:]; len(b.order) == 0 {
		b.order = nil
	}
	return out
}

// Return takes back what could not be written, but for what was replaced meanwhile. Nobody waits
// for it.
func (b *Backlog) Return(w Writing) {
	for _, r := range w.Records {
		if b.byKey[r.Key] == nil {
			b.waiting(r.Key).data = r.Data
		}
	}
}

// Fit returns those records that stores take, and what is said about the others.
func Fit(stores []replication.Store) (fit []replication.Store, unfit []replication.Stored) {
	for i := range stores {
		if err := (durable.Record{Key: stores[i].Key, Data: stores[i].Data}).Check(); err != nil {
			unfit = append(unfit, replication.Stored{Nrs: []uint64{stores[i].Nr}, Err: err})
			continue
		}
		fit = append(fit, stores[i])
	}
	return fit, unfit
}
