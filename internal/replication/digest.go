// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Digest is a hash of data. Equal data has equal digests.
type Digest [16]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// changingDigest stands for the digest of an entry that is changing.
func changingDigest() Digest {
	const all = 0xff
	return Digest{all, all, all, all, all, all, all, all, all, all, all, all, all, all, all, all}
}

func digestOf(b []byte) (d Digest) {
	h := sha256.Sum256(b)
	copy(d[:], h[:])
	return d
}

// Levels of the digest tree: the root covers all data, 32 groups below it cover 32 buckets each.
const (
	branch  = 32
	buckets = branch * branch
)

// bucketOf returns the bucket of a key, which is the same on all nodes.
func bucketOf(key string) uint16 {
	h := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint16(h[:]) % buckets
}

// sum is a commutative sum of digests. An inner node of the tree holds the sum of its children, so
// that a change takes one addition per level.
type sum struct{ a, b uint64 }

func (s *sum) add(o sum) { s.a, s.b = s.a+o.a, s.b+o.b }
func (s *sum) sub(o sum) { s.a, s.b = s.a-o.a, s.b-o.b }

func (s sum) digest() (d Digest) {
	binary.LittleEndian.PutUint64(d[:], s.a)
	binary.LittleEndian.PutUint64(d[8:], s.b)
	return d
}

func sumOf(b []byte) sum {
	h := sha256.Sum256(b)
	return sum{binary.LittleEndian.Uint64(h[:]), binary.LittleEndian.Uint64(h[8:])}
}

// tree holds the sums of the digests of all entries.
type tree struct {
	root    sum
	groups  [branch]sum
	buckets [buckets]sum
}

func (t *tree) add(bucket uint16, s sum) {
	t.root.add(s)
	t.groups[bucket/branch].add(s)
	t.buckets[bucket].add(s)
}

func (t *tree) sub(bucket uint16, s sum) {
	t.root.sub(s)
	t.groups[bucket/branch].sub(s)
	t.buckets[bucket].sub(s)
}

// BucketCount is the number of buckets of the keys, the same on all nodes.
const BucketCount = buckets

// Refresh computes some of the digests that Root, Digests and Bucket require, and reports whether
// all are computed. Callers repeat it, each time in a separate step, so that requests do not wait
// for long.
func (m *Machine) Refresh() bool {
	for n, size := 0, 0; n < maxDigests && size < maxDigestBytes && len(m.dirty) > 0; n++ {
		e := m.dirty[len(m.dirty)-1]
		size += e.size
		m.updateDigest(e)
	}
	return len(m.dirty) == 0
}

// Digests returns the digest of each bucket. Two nodes with equal digests hold the same data in
// that bucket.
func (m *Machine) Digests() (all [BucketCount]Digest) {
	m.updateDigests()
	for i := range all {
		all[i] = m.tree.buckets[i].digest()
	}
	return all
}

// Bucket returns up to limit keys of a bucket after a key, sorted, and whether there are more. The
// digest of a deleted key is the zero Digest.
func (m *Machine) Bucket(nr int, after string, limit int) (keys []KeyDigest, more bool) {
	if nr < 0 || nr >= BucketCount {
		return nil, false
	}
	m.updateDigests()
	b := entriesAfter(m.buckets[nr], after)
	for _, e := range b[:min(len(b), limit)] {
		keys = append(keys, KeyDigest{e.key, e.digest, e.used})
	}
	return keys, limit < len(b)
}
