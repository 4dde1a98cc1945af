// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/refold-io/refold/journal"
)

type appends = func(ctx context.Context, j journal.Journal, writes []journal.Write) []error

// before plants a bug that changes writes before they are stored.
func before(change func(w *journal.Write)) func() bug {
	return func() bug {
		return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
			writes = clone(writes)
			for i := range writes {
				change(&writes[i])
			}
			return j.Append(ctx, writes)
		}}
	}
}

// beforeEach plants a bug that changes events before they are stored.
func beforeEach(change func(e *journal.Event)) func() bug {
	return before(func(w *journal.Write) {
		for i := range w.Events {
			change(&w.Events[i])
		}
	})
}

func appendBugs() []planted {
	plain := func(a appends) func() bug { return func() bug { return bug{append: a} } }
	return []planted{
		{
			name:  "fails without writes",
			finds: []string{"AppendNothing"},
			plant: plain(func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
				if len(writes) == 0 {
					return []error{errors.New("nothing to do")}
				}
				return j.Append(ctx, writes)
			}),
		},
		{
			name:  "takes writes without events",
			finds: []string{"AppendWithoutEvents"},
			plant: plain(func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
				return j.Append(ctx, slices.DeleteFunc(slices.Clone(writes), func(w journal.Write) bool { return len(w.Events) == 0 }))
			}),
		},
		{
			name:  "numbers events itself",
			finds: []string{"AppendNumbering", "AppendIsolation", "AppendUnitIsAtomic", "ListOnlyWritten"},
			plant: before(func(w *journal.Write) {
				for i := range w.Events {
					w.Events[i].SequenceNr = w.Expect + 1 + uint64(i)
				}
			}),
		},
		{
			name:  "one failure fails the call",
			finds: []string{"AppendIsolation", "AppendSkipped", "SizeOversizedPayload", "InvalidIDs"},
			plant: plain(func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
				errs := j.Append(ctx, writes)
				for i := range errs {
					errs[i] = errors.Join(errs...)
				}
				return errs
			}),
		},
		{
			name:  "one error for many writes",
			finds: []string{"AppendIsolation"},
			plant: plain(func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
				return slices.DeleteFunc(j.Append(ctx, writes), func(err error) bool { return err == nil })
			}),
		},
		{
			name:  "stores writes after a failed write",
			finds: []string{"AppendSkipped", "SizeOversizedPayload", "SizeOversizedWrite"},
			plant: plain(func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
				errs := make([]error, len(writes))
				for i := range writes {
					errs[i] = only(j.Append(ctx, writes[i:i+1]))
				}
				return errs
			}),
		},
		{
			name:  "writes of one ID in any order",
			finds: []string{"AppendSeveralOfOneID"},
			plant: plain(func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
				writes = slices.Clone(writes)
				slices.Reverse(writes)
				return j.Append(ctx, writes)
			}),
		},
		{
			name:  "drops writes beyond a limit of the store",
			finds: []string{"AppendManyIDs"},
			plant: plain(func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
				return slots(j.Append(ctx, writes[:min(len(writes), 500)]), writes)
			}),
		},
		{
			name:  "stores half a unit",
			finds: []string{"AppendUnitIsAtomic"},
			plant: plain(func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
				errs := j.Append(ctx, writes)
				for i, err := range errs {
					if w := writes[i]; errors.Is(err, journal.ErrRejected) && len(w.Events) > 1 {
						w.Events = w.Events[:1]
						j.Append(ctx, []journal.Write{w})
					}
				}
				return errs
			}),
		},
		{
			name:  "retains the slices of events",
			finds: []string{"AppendRetainsNoSlices"},
			plant: func() bug {
				var mu sync.Mutex
				retained := make(map[string][]*journal.Event)
				return bug{
					append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
						mu.Lock()
						defer mu.Unlock()
						for _, w := range writes {
							for i := range w.Events {
								retained[w.ID] = append(retained[w.ID], &w.Events[i])
							}
						}
						return j.Append(ctx, writes)
					},
					replay: func(_ context.Context, _ journal.Journal, id string, _, _ uint64) events {
						mu.Lock()
						defer mu.Unlock()
						var got []journal.Event
						for _, e := range retained[id] {
							got = append(got, *e)
						}
						return again(got, nil)
					},
				}
			},
		},
		{
			name:  "changes payloads in place",
			finds: []string{"AppendSharedPayload"},
			plant: beforeEach(func(e *journal.Event) {
				for i := range e.Payload {
					e.Payload[i] ^= 0x55
				}
			}),
		},
		{
			name:  "moves a tag of a later event to the first event of a unit",
			finds: []string{"RandomCalls"},
			plant: before(func(w *journal.Write) {
				if len(w.Events) == 4 && w.Expect > 20 {
					w.Events[0].Tags, w.Events[3].Tags = w.Events[3].Tags, w.Events[0].Tags
				}
			}),
		},
		{
			name:  "rejects large payloads",
			finds: []string{"SizeLargestPayload"},
			plant: plain(func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
				for _, w := range writes {
					if len(w.Events[0].Payload) > 8<<20 {
						return slices.Repeat([]error{errors.New("too large")}, len(writes))
					}
				}
				return j.Append(ctx, writes)
			}),
		},
		{
			name:  "drops invalid tags",
			finds: []string{"InvalidNames"},
			plant: beforeEach(func(e *journal.Event) {
				e.Tags = slices.DeleteFunc(slices.Clone(e.Tags), func(tag string) bool { return !utf8.ValidString(tag) || len(tag) > 1024 })
			}),
		},
		{
			name:  "truncates large payloads",
			finds: []string{"SizeOversizedPayload", "SizeOversizedWrite", "AppendUnitIsAtomic"},
			plant: beforeEach(func(e *journal.Event) { e.Payload = e.Payload[:min(len(e.Payload), 1<<20)] }),
		},
	}
}

// fieldBugs returns bugs that change the fields of stored events.
func fieldBugs() []planted {
	return []planted{
		{
			name:  "payloads end at a NUL",
			finds: []string{"TCK20Payload", "RoundTripPayload"},
			plant: beforeEach(func(e *journal.Event) { e.Payload, _, _ = bytes.Cut(e.Payload, []byte{0}) }),
		},
		{
			name:  "no metadata",
			finds: []string{"TCK21Metadata", "RoundTripMetadata"},
			plant: beforeEach(func(e *journal.Event) { e.Metadata = nil }),
		},
		{
			name:  "long manifests are cut",
			finds: []string{"RoundTripManifest"},
			plant: beforeEach(func(e *journal.Event) { e.Manifest = e.Manifest[:min(len(e.Manifest), 255)] }),
		},
		{
			name:  "tags are sorted",
			finds: []string{"RoundTripTags"},
			plant: beforeEach(func(e *journal.Event) { e.Tags = slices.Sorted(slices.Values(e.Tags)) }),
		},
		{
			name:  "times in milliseconds",
			finds: []string{"TCK01Everything", "RoundTripTime"},
			plant: beforeEach(func(e *journal.Event) { e.Time = e.Time.Truncate(time.Millisecond) }),
		},
		{
			name:  "times in a zone",
			finds: []string{"RoundTripTime"},
			plant: func() bug {
				zone := time.FixedZone("Taipei", 8*3600)
				return bug{replay: func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
					got, err := all(j.Replay(ctx, id, from, to))
					for i := range got {
						got[i].Time = got[i].Time.In(zone)
					}
					return again(got, err)
				}}
			},
		},
		{
			name:  "times since 1970 only",
			finds: []string{"RoundTripTime"},
			plant: beforeEach(func(e *journal.Event) { e.Time = time.UnixMicro(max(0, e.Time.UnixMicro())).UTC() }),
		},
		{
			name:  "ignores the suffix of writers",
			finds: []string{"RoundTripWriter"},
			plant: before(func(w *journal.Write) { w.Writer, _, _ = strings.Cut(w.Writer, "/") }),
		},
		{
			name:  "IDs in one case",
			finds: []string{"IDsAreApart"},
			plant: before(func(w *journal.Write) { w.ID = strings.ToLower(w.ID) }),
		},
		{
			name:  "trims blanks at the end of IDs",
			finds: []string{"IDsAreApart"},
			plant: before(func(w *journal.Write) { w.ID = strings.TrimRight(w.ID, " ") }),
		},
		{
			name:  "long IDs are cut",
			finds: []string{"IDsAreApart"},
			plant: before(func(w *journal.Write) { w.ID = w.ID[:min(len(w.ID), 511)] }),
		},
		{
			name:  "one history per type",
			finds: []string{"TCK11NeverWritten", "IDsAreApart"},
			plant: func() bug {
				short := func(id string) string { name, _ := journal.SplitID(id); return name }
				return bug{
					append: before(func(w *journal.Write) { w.ID = short(w.ID) })().append,
					replay: func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
						return j.Replay(ctx, short(id), from, to)
					},
				}
			},
		},
		{
			name:  "accepts any ID",
			finds: []string{"InvalidIDs"},
			plant: before(func(w *journal.Write) {
				if journal.CheckID(w.ID) != nil {
					w.ID = "whatever"
				}
			}),
		},
	}
}
