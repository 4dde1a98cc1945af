// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/refold-io/refold/journal"
)

type (
	query  = func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error)
	change = func(e *journal.Envelope)
)

func queries(q query) func() bug { return func() bug { return bug{query: q} } }

// changing changes each event that a query yields.
func changing(c change) func() bug {
	return queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
		p, err := j.Query(ctx, q, after)
		for i := range p.Events {
			c(&p.Events[i])
		}
		return p, err
	})
}

// filtering replaces the matching of a query.
func filtering(simpler func(q journal.Criteria) journal.Criteria, keep func(q journal.Criteria, e *journal.Envelope) bool) func() bug {
	return queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
		p, err := j.Query(ctx, simpler(q), after)
		p.Events = slices.DeleteFunc(p.Events, func(e journal.Envelope) bool { return !keep(q, &e) })
		return p, err
	})
}

// queryBugs returns bugs in the selection and the order of events.
func queryBugs() []planted {
	return slices.Concat(orderBugs(), matchBugs(), argumentBugs())
}

func orderBugs() []planted {
	return []planted{
		{
			name:  "pages begin at the end",
			finds: []string{"QueryOrder", "QueryPages", "QueryFields"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				slices.Reverse(p.Events)
				return p, err
			}),
		},
		{
			name:  "a different order in each read",
			finds: []string{"QueryOrder", "QueryResume", "QueryTogether"},
			plant: func() bug {
				var calls atomic.Int64
				return bug{query: func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
					p, err := j.Query(ctx, q, after)
					if calls.Add(1)%2 == 0 {
						swap(p.Events, func(a, b string) bool { return a != b })
					}
					return p, err
				}}
			},
		},
		{
			name:  "events of one ID out of order",
			finds: []string{"QueryOrder", "QueryFields"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				swap(p.Events, func(a, b string) bool { return a == b })
				return p, err
			}),
		},
		{
			name:  "offsets that are not ordered",
			finds: []string{"QueryOrder", "QueryResume"},
			plant: offsets(func(o journal.Offset) journal.Offset { // "mem-10" is "mem-01", and back
				prefix, digits, _ := strings.Cut(string(o), "-")
				reversed := []rune(digits)
				slices.Reverse(reversed)
				return journal.Offset(prefix + "-" + string(reversed))
			}, nil),
		},
		{
			name:  "offsets of any length",
			finds: []string{"QueryOrder"},
			plant: offsets(func(o journal.Offset) journal.Offset { return journal.Offset(strings.Repeat("x", 64)) + o },
				func(o journal.Offset) journal.Offset { return o[64:] }),
		},
		{
			name:  "offsets with a control character",
			finds: []string{"QueryOrder"},
			plant: offsets(func(o journal.Offset) journal.Offset { return "\x01" + o }, func(o journal.Offset) journal.Offset { return o[1:] }),
		},
		{
			name:  "a query leaves out metadata",
			finds: []string{"QueryFields"},
			plant: changing(func(e *journal.Envelope) { e.Metadata = nil }),
		},
		{
			name:  "a query leaves out the writer",
			finds: []string{"QueryFields", "QueryOrder"},
			plant: changing(func(e *journal.Envelope) { e.Writer = "" }),
		},
		{
			name:  "a query sorts tags",
			finds: []string{"QueryFields"},
			plant: changing(func(e *journal.Envelope) { e.Tags = slices.Sorted(slices.Values(e.Tags)) }),
		},
		{
			name:  "a query cuts payloads",
			finds: []string{"QueryFields", "QueryLargePages"},
			plant: changing(func(e *journal.Envelope) { e.Payload = e.Payload[:min(len(e.Payload), 16_384)] }),
		},
	}
}

// swap exchanges the first pair of neighbors whose IDs satisfy so. The offsets keep their places.
func swap(events []journal.Envelope, so func(a, b string) bool) {
	for i := 1; i < len(events); i++ {
		a, b := &events[i-1], &events[i]
		if so(a.ID, b.ID) {
			a.ID, b.ID = b.ID, a.ID
			a.Event, b.Event = b.Event, a.Event
			return
		}
	}
}

// offsets plants another form of offsets: encode converts to that form, and decode converts back. A
// nil decode means that encode is its own inverse.
func offsets(encode, decode func(journal.Offset) journal.Offset) func() bug {
	if decode == nil {
		decode = encode
	}
	or := func(change func(journal.Offset) journal.Offset, o journal.Offset) journal.Offset {
		if o == "" {
			return ""
		}
		return change(o)
	}
	return func() bug {
		return bug{
			query: func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, or(decode, after))
				for i := range p.Events {
					p.Events[i].Offset = encode(p.Events[i].Offset)
				}
				p.Next = or(encode, p.Next)
				return p, err
			},
			end: func(ctx context.Context, j journal.Querier) (journal.Offset, error) {
				o, err := j.End(ctx)
				return or(encode, o), err
			},
			await: func(ctx context.Context, j journal.Querier, after journal.Offset) error {
				return j.Await(ctx, or(decode, after))
			},
		}
	}
}

func matchBugs() []planted {
	noType := func(q journal.Criteria) journal.Criteria { q.Types = nil; return q }
	typed := func(q journal.Criteria, e *journal.Envelope, is func(a, b string) bool) bool {
		name, _ := journal.SplitID(e.ID)
		return len(q.Types) == 0 || slices.ContainsFunc(q.Types, func(want string) bool { return is(name, want) })
	}
	noTag := func(q journal.Criteria) journal.Criteria { q.Tag = ""; return q }
	noSlices := func(q journal.Criteria) journal.Criteria { q.Slices = journal.Slices{}; return q }
	tagged := func(q journal.Criteria, e *journal.Envelope, is func(a, b string) bool) bool {
		return q.Tag == "" || slices.ContainsFunc(e.Tags, func(tag string) bool { return is(tag, q.Tag) })
	}
	return []planted{
		{
			name:  "IDs without regard to case",
			finds: []string{"QueryOddIDs", "QueryType"},
			plant: changing(func(e *journal.Envelope) { e.ID = strings.ToLower(e.ID) }),
		},
		{
			name:  "a type is a prefix",
			finds: []string{"QueryType"},
			plant: filtering(noType, func(q journal.Criteria, e *journal.Envelope) bool { return typed(q, e, strings.HasPrefix) }),
		},
		{
			name:  "a type without regard to case",
			finds: []string{"QueryType"},
			plant: filtering(noType, func(q journal.Criteria, e *journal.Envelope) bool { return typed(q, e, strings.EqualFold) }),
		},
		{
			name:  "takes an ID without a type as a type",
			finds: []string{"QueryType"},
			plant: filtering(noType, func(q journal.Criteria, e *journal.Envelope) bool {
				name, _, _ := strings.Cut(e.ID, "|")
				return len(q.Types) == 0 || slices.Contains(q.Types, name)
			}),
		},
		{
			name:  "reads only the first of several types",
			finds: []string{"QueryTypes"},
			hangs: true, // waits for events that the query does not find
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				q.Types = q.Types[:min(len(q.Types), 1)]
				return j.Query(ctx, q, after)
			}),
		},
		{
			name:  "returns the records of Refold itself to a query without a type",
			finds: []string{"QueryReserved"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				if len(q.Types) == 0 {
					q.Types = []string{"account", "refold", journal.ReservedPrefix + "own"}
				}
				return j.Query(ctx, q, after)
			}),
		},
		{
			name:  "a tag is a prefix",
			finds: []string{"QueryTag"},
			plant: filtering(noTag, func(q journal.Criteria, e *journal.Envelope) bool { return tagged(q, e, strings.HasPrefix) }),
		},
		{
			name:  "tags without regard to case",
			finds: []string{"QueryTag"},
			plant: filtering(noTag, func(q journal.Criteria, e *journal.Envelope) bool { return tagged(q, e, strings.EqualFold) }),
		},
		{
			name:  "tags without regard to white space",
			finds: []string{"QueryTag"},
			plant: filtering(noTag, func(q journal.Criteria, e *journal.Envelope) bool {
				return tagged(q, e, func(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) })
			}),
		},
		{
			name:  "searches only the first tags",
			finds: []string{"QueryTag"},
			hangs: true, // waits for events that the query does not find
			plant: filtering(noTag, func(q journal.Criteria, e *journal.Envelope) bool {
				return q.Tag == "" || slices.Contains(e.Tags[:min(len(e.Tags), 64)], q.Tag)
			}),
		},
		{
			name:  "returns an event twice for a repeated tag",
			finds: []string{"QueryTag"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				var events []journal.Envelope
				for _, e := range p.Events {
					for _, tag := range e.Tags {
						if tag == q.Tag {
							events = append(events, e)
						}
					}
				}
				if q.Tag != "" {
					p.Events = events
				}
				return p, err
			}),
		},
		{
			name:  "the last slice of a range is left out",
			finds: []string{"QuerySlices"},
			hangs: true, // waits for events that the query does not find
			plant: filtering(noSlices, func(q journal.Criteria, e *journal.Envelope) bool {
				first, last := q.Slices.Bounds()
				slice := journal.SliceOf(e.ID)
				return q.Slices.Count == 0 || first <= slice && slice < last
			}),
		},
		{
			name:  "slices of runes",
			finds: []string{"QuerySlices"},
			plant: filtering(noSlices, func(q journal.Criteria, e *journal.Envelope) bool {
				var h int32
				for _, r := range e.ID {
					h = h*31 + r
				}
				slice := int(h % journal.SliceCount)
				return q.Slices.Contains(max(slice, -slice))
			}),
		},
		{
			name:  "a query by type ignores the tag",
			finds: []string{"QueryTogether"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				if len(q.Types) > 0 {
					q.Tag = ""
				}
				return j.Query(ctx, q, after)
			}),
		},
		{
			name:  "a query by tag ignores the slices",
			finds: []string{"QueryTogether"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				if q.Tag != "" {
					q.Slices = journal.Slices{}
				}
				return j.Query(ctx, q, after)
			}),
		},
	}
}

// argumentBugs returns bugs in the checks of queries and offsets.
func argumentBugs() []planted {
	return []planted{
		{
			name:  "an invalid query selects all events",
			finds: []string{"QueryInvalid"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				if q.Check() != nil {
					q = journal.Criteria{}
				}
				return j.Query(ctx, q, after)
			}),
		},
		{
			name:  "an invalid query selects no events",
			finds: []string{"QueryInvalid"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				if q.Check() == nil {
					return j.Query(ctx, q, after)
				}
				return journal.Page{Next: after}, nil
			}),
		},
		{
			name:  "reads a bad offset as the beginning",
			finds: []string{"QueryBadOffset"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				if errors.Is(err, journal.ErrOffset) {
					return j.Query(ctx, q, "")
				}
				return p, err
			}),
		},
		{
			name:  "accepts white space around offsets",
			finds: []string{"QueryBadOffset"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				return j.Query(ctx, q, journal.Offset(strings.TrimSpace(string(after))))
			}),
		},
		{
			name:  "Await accepts any offset",
			finds: []string{"QueryBadOffset"},
			plant: func() bug {
				return bug{await: func(ctx context.Context, j journal.Querier, after journal.Offset) error {
					err := j.Await(ctx, after)
					if errors.Is(err, journal.ErrOffset) {
						return nil
					}
					return err
				}}
			},
		},
	}
}
