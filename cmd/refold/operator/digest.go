// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// Digest stands for the contents of a persistence ID or of a whole journal: two
// that have the same hold the same highest numbers, records and snapshots,
// whatever plugin keeps them. What does not count is the order between
// persistence IDs. The zero value is that of no ID.
//
// That of a journal is the SHA-256 of those of its IDs in bytewise order. That
// of an ID is the SHA-256 of what it holds, each text and number with its
// length; the first byte is the version of this form.
type Digest [sha256.Size]byte

// String returns the digest as hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

const digestVersion = 1

// digester makes a Digest of what it is told, in that order.
type digester struct {
	hash    hash.Hash
	scratch []byte
}

// newDigester begins the digest of a persistence ID, or of a journal if there
// is none.
func newDigester(id string) *digester {
	d := &digester{hash: sha256.New()}
	d.number(digestVersion)
	d.text(id)
	return d
}

func (d *digester) number(n uint64) {
	d.scratch = binary.BigEndian.AppendUint64(d.scratch[:0], n)
	_, _ = d.hash.Write(d.scratch) // never fails
}

func (d *digester) bytes(b []byte) {
	d.number(uint64(len(b)))
	_, _ = d.hash.Write(b)
}

func (d *digester) text(s string) { d.bytes([]byte(s)) }

// highest takes note of the highest number, which comes behind the records.
func (d *digester) highest(n uint64) {
	d.number(0)
	d.number(n)
}

// record takes note of a record.
func (d *digester) record(e *journal.Event) {
	d.number(e.SequenceNr)
	d.number(uint64(e.Time.UnixMicro()))
	d.text(e.Writer)
	d.text(e.Manifest)
	d.bytes(e.Payload)
	d.number(uint64(len(e.Tags)))
	for _, tag := range e.Tags {
		d.text(tag)
	}
	d.bytes(e.Metadata)
}

// snapshot takes note of a snapshot. They come behind the highest number.
func (d *digester) snapshot(s *snapshot.Snapshot) {
	d.number(s.SequenceNr)
	d.number(uint64(s.Time.UnixMicro()))
	d.text(s.Manifest)
	d.bytes(s.Payload)
}

// add takes note of a persistence ID of a journal.
func (d *digester) add(one Digest) { _, _ = d.hash.Write(one[:]) }

func (d *digester) sum() (out Digest) {
	d.hash.Sum(out[:0])
	return out
}
