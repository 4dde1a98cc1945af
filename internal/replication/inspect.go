// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

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
