// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"

	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

type listFlags struct {
	journalFlag
	After string `help:"List persistence IDs that sort after this one." placeholder:"ID"`
	Limit int    `help:"Maximum number of lines to print; 0 is no limit." default:"1000"`
	JSON  bool   `name:"json" help:"Print one JSON object per line."`
}

func (f *listFlags) check(id string) error {
	switch {
	case f.Limit < 0:
		return fmt.Errorf("--limit is %d, must not be negative", f.Limit)
	case id != "" && f.After != "":
		return errors.New("--after cannot be combined with a persistence ID")
	}
	return nil
}

func (f *listFlags) limit() int { return cmp.Or(f.Limit, math.MaxInt) }

// eachID calls do with the persistence IDs after --after, until do returns false or an error. Unless
// all is set, eachID passes over those of Refold itself and prints their number.
func (f *listFlags) eachID(ctx context.Context, env *Env, src *Source, all bool, do func(id string) (more bool, err error)) error {
	hidden := 0
	for id, err := range inspect.Listed(ctx, src.Journal, f.After) {
		if err != nil {
			return err
		}
		if !all && journal.IsReserved(id) {
			hidden++
			continue
		}
		if more, err := do(id); !more || err != nil {
			return err
		}
	}
	if hidden > 0 {
		env.note("%s of Refold itself not shown: --all", count(hidden, "persistence ID"))
	}
	return nil
}

// requireID returns the highest number of a persistence ID. It returns an error if the source has
// neither records nor snapshots of the ID.
func requireID(ctx context.Context, src *Source, id string) (highest uint64, err error) {
	highest, err = src.Journal.HighestSequenceNr(ctx, id)
	if err != nil || highest > 0 {
		return highest, err
	}
	if src.Snapshots != nil {
		for _, err := range src.Snapshots.List(ctx, id, snapshot.Latest()) {
			return 0, err
		}
	}
	return 0, fmt.Errorf("no persistence ID %q; the events command lists them", id)
}

// ahead is the number of buffered results per worker, so that a slow ID does not stop the others.
const ahead = 64

var errEnough = errors.New("operator: enough")

// inOrder calls do for each ID, for up to n of them concurrently. It calls take with the results
// one at a time, in the order of the IDs, and returns the first error in that order.
func inOrder[T any](ctx context.Context, n int, ids iter.Seq2[string, error],
	do func(ctx context.Context, id string) (T, error), take func(id string, result T) error,
) (failed error) {
	type slot struct {
		id     string
		result T
		err    error
		done   chan struct{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	slots, room := make(chan *slot, n*ahead), make(chan struct{}, n)
	var working sync.WaitGroup
	working.Go(func() {
		defer close(slots)
		for id, err := range ids {
			s := &slot{id: id, err: err, done: make(chan struct{})}
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			slots <- s // full only while the reader waits for a running slot
			working.Go(func() {
				defer close(s.done)
				defer func() { <-room }()
				if s.err == nil {
					s.result, s.err = do(ctx, s.id)
				}
			})
		}
	})
	for s := range slots {
		if <-s.done; failed == nil {
			if failed = s.err; failed == nil {
				failed = take(s.id, s.result)
			}
			if failed != nil {
				cancel(errEnough) // stop the other workers
			}
		}
	}
	working.Wait()
	if failed == nil {
		failed = context.Cause(ctx)
	}
	cancel(nil)
	return failed
}

// merged yields the IDs of two sorted lists. It yields an ID of both lists once.
func merged(a, b iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		nextA, stopA := iter.Pull2(a)
		defer stopA()
		nextB, stopB := iter.Pull2(b)
		defer stopB()
		idA, errA, okA := nextA()
		idB, errB, okB := nextB()
		for okA || okB {
			if err := errors.Join(errA, errB); err != nil {
				yield("", err)
				return
			}
			id := idA
			if !okA || okB && idB < idA {
				id = idB
			}
			if !yield(id, nil) {
				return
			}
			if okA && idA == id {
				idA, errA, okA = nextA()
			}
			if okB && idB == id {
				idB, errB, okB = nextB()
			}
		}
	}
}

const (
	// cellLength is the length of a payload in a table, in characters.
	cellLength = 160
	// lineLength bounds a payload in a line of JSON, in bytes.
	lineLength = 8 << 20
)

type rendered struct {
	Payload json.RawMessage `json:"payload"`
	// Error is the reason why Payload is empty. Raw is then the stored payload, unless it is too
	// long.
	Error string `json:"payload_error,omitempty"`
	Raw   []byte `json:"payload_raw,omitempty"`
}

func renderLine(f inspect.Format, payload []byte) rendered {
	text, err := f.Render(payload, lineLength)
	if err == nil {
		return rendered{Payload: text}
	}
	r := rendered{Error: err.Error()}
	if base64.StdEncoding.EncodedLen(len(payload)) <= lineLength {
		r.Raw = payload
	}
	return r
}

func renderCell(f inspect.Format, payload []byte) string {
	text, err := f.Render(payload, 4*cellLength)
	if err != nil && !errors.Is(err, inspect.ErrTooLong) {
		return fmt.Sprintf("(%s: %v)", count(len(payload), "byte"), err)
	}
	return shorten(string(text), cellLength)
}

func shorten(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

func count[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
