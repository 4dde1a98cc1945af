// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"time"

	"github.com/refold-io/refold/identity"
)

// stage is how far a shard is on the way to a home.
type stage uint8

const (
	waiting   stage = iota // to be asked for
	unknown                // to be remembered first
	asked                  // the strategy is being asked, or has answered
	postponed              // there was no region
)

// want is a shard that needs a home.
type want struct {
	stage     stage
	requester identity.Node
	askers    []identity.Node // sorted
}

// wants are the shards that need a home. Each list has those of its stage in their order, and may have
// others that are of another stage by now.
type wants struct {
	by        map[Shard]*want
	waiting   []Shard
	unknown   []Shard
	postponed []Shard
	wakeAt    time.Duration // when those that are postponed are tried again
}

// add notes that a shard is needed. Who asks gets an answer.
func (w *wants) add(s Shard, by identity.Node, asks, known bool) {
	at := w.by[s]
	if at == nil {
		at = &want{requester: by}
		w.by[s] = at
		w.file(s, at, known)
	}
	if asks {
		at.askers = with(at.askers, by)
	}
}

// file puts a shard where it is asked for.
func (w *wants) file(s Shard, at *want, known bool) {
	if known {
		at.stage = waiting
		w.waiting = append(w.waiting, s)
		return
	}
	at.stage = unknown
	w.unknown = append(w.unknown, s)
}

// take removes a shard, and returns who has asked for it.
func (w *wants) take(s Shard) []identity.Node {
	at := w.by[s]
	if at == nil {
		return nil
	}
	delete(w.by, s)
	return at.askers
}

// collect takes up to most shards off one of the lists.
func (w *wants) collect(list *[]Shard, of stage, most int) []Shard {
	var found []Shard
	i := 0
	for ; i < len(*list) && len(found) < most; i++ {
		if at := w.by[(*list)[i]]; at != nil && at.stage == of {
			at.stage = asked
			found = append(found, (*list)[i])
		}
	}
	*list = (*list)[i:]
	return found
}

// remembered asks for shards that were not known.
func (w *wants) remembered(shards []Shard) {
	for _, s := range shards {
		if at := w.by[s]; at != nil {
			w.file(s, at, true)
		}
	}
}

// postpone puts shards off for which there was no region.
func (w *wants) postpone(shards []Shard, until time.Duration) {
	for _, s := range shards {
		if at := w.by[s]; at != nil {
			at.stage = postponed
			w.postponed = append(w.postponed, s)
			w.wakeAt = min(w.wakeAt, until)
		}
	}
}

// wake asks for shards again that were put off.
func (w *wants) wake() {
	w.wakeAt = Never
	w.remembered(w.collect(&w.postponed, postponed, len(w.postponed)))
}

// asking is the question to the strategy. There is one at a time, and the next one is asked when the
// answer is being stored: it sees what was decided.
type asking struct {
	id     uint64 // 0 is none
	shards []Shard
}

// answered is the number of a question whose answer is not decided upon yet. No question has it.
const answered = 1<<64 - 1

// adding are shards that are being remembered. They are tried for ever.
type adding struct {
	id      uint64 // 0 is none
	shards  []Shard
	retryAt time.Duration
}

// hosting is a number of shards that a region was told to start.
type hosting struct {
	due    time.Duration
	node   identity.Node
	round  uint64
	shards []Shard
}
