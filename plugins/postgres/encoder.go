// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"sync"

	"github.com/refold-io/refold/journal"
)

// encoder turns chains into the arrays that append_many takes.
type encoder struct {
	ids, expects                           array // one element for each chain
	heads, eventIDs, seqNrs, slices, times array // one for each event
	writers, manifests, payloads           array
	tags, metadata                         array

	tagged, annotated bool // there are any
	literal           []byte
}

// maxKeptEncoder is how much memory of an encoder is kept for the next call.
const maxKeptEncoder = 8 << 20

var encoders = sync.Pool{New: func() any { return new(encoder) }} //nolint:gochecknoglobals // a cache of memory

func getEncoder() *encoder {
	e, _ := encoders.Get().(*encoder)
	for _, each := range []struct {
		a   *array
		oid uint32
	}{
		{&e.ids, oidText},
		{&e.expects, oidInt8},
		{&e.heads, oidInt4},
		{&e.eventIDs, oidText},
		{&e.seqNrs, oidInt8},
		{&e.slices, oidInt2},
		{&e.times, oidTimestamp},
		{&e.writers, oidText},
		{&e.manifests, oidText},
		{&e.payloads, oidBytes},
		{&e.tags, oidText},
		{&e.metadata, oidBytes},
	} {
		each.a.reset(each.oid)
	}
	e.tagged, e.annotated = false, false
	return e
}

func putEncoder(e *encoder) {
	if cap(e.payloads.buf)+cap(e.metadata.buf)+cap(e.tags.buf)+cap(e.manifests.buf) <= maxKeptEncoder {
		encoders.Put(e)
	}
}

// chain adds the events of a chain, which is the one with that index.
func (e *encoder) chain(index int, c *chain, writes []journal.Write) {
	e.ids.text(c.id)
	e.expects.int8(c.expect)
	slice := int16(journal.SliceOf(c.id)) //nolint:gosec // below 1,024
	for _, i := range c.writes {
		w := &writes[i]
		for k := range w.Events {
			event := &w.Events[k]
			e.heads.int4(int32(index + 1)) //nolint:gosec // arrays of the server begin at 1, and are not that long
			e.eventIDs.text(c.id)
			e.seqNrs.int8(event.SequenceNr)
			e.slices.int2(slice)
			e.times.int8(timestamp(event.Time))
			e.writers.text(w.Writer)
			e.manifests.text(event.Manifest)
			e.payloads.bytes(event.Payload)
			e.eventTags(event.Tags)
			if len(event.Metadata) == 0 {
				e.metadata.null()
			} else {
				e.metadata.bytes(event.Metadata)
				e.annotated = true
			}
		}
	}
}

// eventTags adds the tags of an event as an array in its text form: an array of
// arrays would have to be rectangular.
func (e *encoder) eventTags(tags []string) {
	if len(tags) == 0 {
		e.tags.null()
		return
	}
	e.tagged = true
	b := append(e.literal[:0], '{')
	for i, tag := range tags {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		for k := range len(tag) {
			if tag[k] == '"' || tag[k] == '\\' {
				b = append(b, '\\')
			}
			b = append(b, tag[k])
		}
		b = append(b, '"')
	}
	e.literal = append(b, '}')
	e.tags.bytes(e.literal)
}

func (e *encoder) params() [][]byte {
	params := [][]byte{
		e.ids.value(), e.expects.value(), e.heads.value(), e.eventIDs.value(), e.seqNrs.value(), e.slices.value(), e.times.value(),
		e.writers.value(), e.manifests.value(), e.payloads.value(), nil, nil,
	}
	if e.tagged {
		params[10] = e.tags.value()
	}
	if e.annotated {
		params[11] = e.metadata.value()
	}
	return params
}
