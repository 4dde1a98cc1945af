// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import "github.com/refold-io/refold/ddata/durable"

// Backlog holds the last pending record of each key. The zero value is empty. It is not safe for
// concurrent use.
type Backlog struct {
	order []string // keys in order of arrival, including those that were taken
	byKey map[string]*waiting
}

// waiting is the pending record of a key, with the numbers of all Store effects of the key that it
// replaces.
type waiting struct {
	data []byte
	nrs  []uint64
}

// Writing is a set of records for one call of the store. Its result is reported for all Nrs.
type Writing struct {
	Records []durable.Record
	Nrs     []uint64
}

// Add adds records.
func (b *Backlog) Add(stores []Store) {
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

// Len returns the number of pending records.
func (b *Backlog) Len() int { return len(b.byKey) }

// Take removes the oldest pending records, limited by number and bytes, but at least one if there
// is one.
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

// Return puts back records that could not be written, except keys with a newer record. Their
// numbers were already reported.
func (b *Backlog) Return(w Writing) {
	for _, r := range w.Records {
		if b.byKey[r.Key] == nil {
			b.waiting(r.Key).data = r.Data
		}
	}
}

// Fit returns the records that pass Check, and the results for the others.
func Fit(stores []Store) (fit []Store, unfit []Stored) {
	for i := range stores {
		if err := (durable.Record{Key: stores[i].Key, Data: stores[i].Data}).Check(); err != nil {
			unfit = append(unfit, Stored{Nrs: []uint64{stores[i].Nr}, Err: err})
			continue
		}
		fit = append(fit, stores[i])
	}
	return fit, unfit
}
