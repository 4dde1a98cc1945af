// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

// Record is an entry as it is on disk. Value refers to what it was decoded from.
type Record struct {
	Deleted bool
	// Value is the encoded value.
	Value []byte
	// Pruning are the markers of what was done.
	Pruning []Marker
	// Used is when the key was last used, in Unix milliseconds, 0 if nobody cares.
	Used uint64
}

// recordVersion is the first byte of each record. Another can't be read.
const recordVersion = 1

// AppendRecord appends an encoded record.
func AppendRecord(dst []byte, r Record) []byte {
	var w writer
	w.bool(r.Deleted)
	if !r.Deleted {
		w.text(r.Value)
		w.markers(r.Pruning)
	}
	if r.Used > 0 { // records were without it once
		w.uint(r.Used)
	}
	return w.finish(dst, recordVersion)
}

// DecodeRecord decodes what AppendRecord has written. The error matches
// ErrMalformed.
func DecodeRecord(b []byte) (Record, error) {
	r := &reader{b: b}
	if len(b) > MaxMessage+overhead {
		r.fail("a record of %d bytes", len(b))
	}
	if version := r.byte(255, "version"); r.err == nil && version != recordVersion {
		r.fail("a record of version %d, known is %d", version, recordVersion)
	}
	r.table()
	rec := Record{Deleted: r.bool("deleted")}
	if !rec.Deleted {
		rec.Value, rec.Pruning = r.text("value"), r.markers()
	}
	if len(r.b) > 0 {
		if rec.Used = r.number("time"); r.err == nil && rec.Used == 0 {
			r.fail("a time of use that is 0")
		}
	}
	if len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	if r.err != nil {
		return Record{}, r.err
	}
	return rec, nil
}
