// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Digest is a short form of some data: equal if the data is.
type Digest [16]byte

// String returns the digest in hexadecimal, as operators see it.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// changing is what stands for the digest of an entry that changes. No data has it, but by chance.
func changing() Digest {
	const all = 0xff
	return Digest{all, all, all, all, all, all, all, all, all, all, all, all, all, all, all, all}
}

func digestOf(b []byte) (d Digest) {
	h := sha256.Sum256(b)
	copy(d[:], h[:])
	return d
}

// Buckets of the digest tree: the root stands for all, 32 groups below it for 32
// buckets each.
const (
	branch  = 32
	buckets = branch * branch
)

// bucketOf returns the bucket of a key, the same on all nodes.
func bucketOf(key string) uint16 {
	h := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint16(h[:]) % buckets
}

// sum adds up digests in any order. That of a tree's branch is the sum of all that
// is below it, so a change takes no more than one addition at each level.
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

// tree holds the digests of all entries.
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

// BucketCount is how many parts the keys are divided into, the same way on all nodes.
const BucketCount = buckets

// Refresh computes some of the digests that Root, Digests and Bucket need, and reports whether there are no more to be computed. Who calls it
// until then, each time in a step of its own, holds up no requests for long.
func (m *Machine) Refresh() bool {
	for n, size := 0, 0; n < maxRefreshed && size < maxRefreshedBytes && len(m.dirty) > 0; n++ {
		e := m.dirty[len(m.dirty)-1]
		size += e.size
		m.clean(e)
	}
	return len(m.dirty) == 0
}

// Digests returns the digest of each bucket: of two nodes they are equal if those hold the same there.
func (m *Machine) Digests() (all [BucketCount]Digest) {
	m.refresh()
	for i := range all {
		all[i] = m.tree.buckets[i].digest()
	}
	return all
}

// Bucket returns what a bucket holds behind a key, in the order of the keys, up to a number of them. The digest of a deleted key is
// the zero Digest.
func (m *Machine) Bucket(nr int, after string, limit int) (keys []KeyDigest, more bool) {
	if nr < 0 || nr >= BucketCount {
		return nil, false
	}
	m.refresh()
	b := m.buckets[nr]
	i, found := findEntry(b, after)
	if found {
		i++
	}
	for _, e := range b[i:min(len(b), i+limit)] {
		keys = append(keys, KeyDigest{e.key, e.digest, e.used})
	}
	return keys, i+limit < len(b)
}
