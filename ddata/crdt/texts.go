// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "strings"

// maxTexts is how many bytes of elements share memory, at most: one that stays keeps that of its neighbours.
const maxTexts = 512

// texts makes strings of bytes that are decoded together. They share memory, as a set of many short elements is less work for
// the garbage collector then.
type texts struct{ b strings.Builder }

// add returns a string, behind which as many more of about that length follow.
func (t *texts) add(b []byte, more int) string {
	if t.b.Cap()-t.b.Len() < len(b) {
		t.b = strings.Builder{}
		t.b.Grow(max(len(b), min(maxTexts, len(b)*(1+more))))
	}
	at := t.b.Len()
	t.b.Write(b)
	return t.b.String()[at:]
}
