// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/journal"
)

// queried is a journal that supports only queries. Its pages have at most two events.
type queried struct {
	journal.Journal

	mu     sync.Mutex
	events []journal.Envelope
	faults []error       // errors of the next queries; nil means that the query succeeds
	added  chan struct{} // closed and replaced when an event is added

	waiting chan struct{} // signaled when a reader starts to wait
}

// stored returns a journal with events that belong alternately to "a|1" and "b|1".
func stored(events ...journal.Event) *queried {
	q := &queried{added: make(chan struct{}), waiting: make(chan struct{}, 100)}
	for i, e := range events {
		q.add([]string{"a|1", "b|1"}[i%2], e)
	}
	return q
}

func (q *queried) add(id string, e journal.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = append(q.events, journal.Envelope{Event: e, ID: id, Offset: offset(len(q.events) + 1)})
	close(q.added)
	q.added = make(chan struct{})
}

func offset(n int) journal.Offset { return journal.Offset("q" + strconv.Itoa(n)) }

func (q *queried) Query(ctx context.Context, subject journal.Criteria, after journal.Offset) (journal.Page, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.faults) > 0 {
		err := q.faults[0]
		if q.faults = q.faults[1:]; err != nil {
			return journal.Page{}, err
		}
	}
	page := journal.Page{Next: after}
	for _, e := range q.events {
		switch {
		case ctx.Err() != nil:
			return journal.Page{}, ctx.Err()
		case e.Offset.Compare(after) <= 0:
			continue
		case len(page.Events) == 2:
			page.More = true
			return page, nil
		}
		page.Next = e.Offset
		if subject.Matches(e.ID, e.Tags) {
			page.Events = append(page.Events, e)
		}
	}
	return page, nil
}

func (q *queried) End(context.Context) (journal.Offset, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return "", nil
	}
	return q.events[len(q.events)-1].Offset, nil
}

func (q *queried) Await(ctx context.Context, after journal.Offset) error {
	q.mu.Lock()
	added, n := q.added, len(q.events)
	q.mu.Unlock()
	if n > 0 && offset(n).Compare(after) > 0 {
		return nil
	}
	q.waiting <- struct{}{}
	select {
	case <-added:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (q *queried) program(still bool) operator.Program {
	return operator.Program{Open: func(context.Context, string) (*operator.Source, error) {
		return &operator.Source{Journal: q, NoWriters: still, Close: func() error { return nil }}, nil
	}}
}

func TestTailOfStoredEvents(t *testing.T) {
	t.Parallel()
	events := good(5)
	events[1].Tags = []string{"vip"}
	events[4].Tags = []string{"vip", "late"}
	const head = "OFFSET  TIME                         ID   NR  MANIFEST  TAGS%*s  PAYLOAD\n"
	table := func(width int, rows ...int) string {
		text := fmt.Sprintf(head, width-4, "")
		for _, n := range rows {
			text += fmt.Sprintf("q%d      2026-01-02T12:00:0%d.000000Z  %s  %d   noted     %-*s  {}\n",
				n, n, []string{"b|1", "a|1"}[n%2], n, width, strings.Join(events[n-1].Tags, ","))
		}
		return text
	}
	line := func(n int, tags string) string {
		return fmt.Sprintf(`{"offset":"q%d","id":"%s","sequence_nr":%d,"time":"2026-01-02T12:00:0%d.000000Z","writer":"w","manifest":"noted",%s"payload":{}}`+"\n",
			n, []string{"b|1", "a|1"}[n%2], n, n, tags)
	}
	for args, want := range map[string]string{
		"":                           table(4, 1, 2, 3, 4) + strings.TrimPrefix(table(8, 5), fmt.Sprintf(head, 4, "")),
		"--after q3 --tag late":      table(8, 5),
		"--type b":                   table(4, 2, 4),
		"--id b|1":                   table(4, 2, 4),
		"--id b|1 --tag vip":         table(4, 2),
		"--slices 0-1":               "",
		"--json --after q1 --type b": line(2, `"tags":["vip"],`) + line(4, ""),
		"--after q5":                 "",
	} {
		for _, still := range []bool{true, false} {
			if !still {
				args += " --no-follow"
			}
			o := start(t, stored(events...).program(still), append([]string{"tail"}, strings.Fields(args)...)...)
			o.want(t, operator.ExitOK, "refold: to continue, use --after q5\n")
			if o.stdout != want {
				t.Errorf("tail %s: got\n%swant\n%s", args, o.stdout, want)
			}
		}
	}
}

func TestTailUsage(t *testing.T) {
	t.Parallel()
	q := stored()
	for args, want := range map[string]string{
		"--after q1 --from-start": "exclude each other",
		"--id a|1 --type a":       "--type and --slices cannot be combined",
		"--id a|1 --slices 3":     "--type and --slices cannot be combined",
		"--slices 3-1":            `"3-1" is not a range of slices`,
		"--slices 0-1024":         "is not a range of slices",
		"--slices x":              "is not a range of slices",
		"--type a|b":              "Criteria.Types",
	} {
		start(t, q.program(false), append([]string{"tail"}, strings.Fields(args)...)...).want(t, operator.ExitFailed, want)
	}
	p := operator.Program{Open: func(context.Context, string) (*operator.Source, error) {
		return &operator.Source{Journal: &fakeJournal{}, Close: func() error { return nil }}, nil
	}}
	start(t, p, "tail").want(t, operator.ExitFailed, journal.ErrNoQueries.Error())
}

// lineReader returns the output of a program line by line.
type lineReader struct {
	t     *testing.T
	lines chan string
	rest  bytes.Buffer
}

func (r *lineReader) Write(p []byte) (int, error) {
	r.rest.Write(p)
	for {
		line, err := r.rest.ReadString('\n')
		if errors.Is(err, io.EOF) {
			r.rest.WriteString(line)
			return len(p), nil
		}
		r.lines <- line
	}
}

func (r *lineReader) want(parts ...string) {
	r.t.Helper()
	line := <-r.lines
	for _, part := range parts {
		if !strings.Contains(line, part) {
			r.t.Errorf("printed %q, want %q in it", line, part)
		}
	}
}

// Tail prints new events, continues after the store was unavailable, and ends with its context.
func TestTailFollows(t *testing.T) {
	t.Parallel()
	events := good(5)
	q := stored(events[:2]...)
	out := &lineReader{t: t, lines: make(chan string)}
	var errs bytes.Buffer
	p := q.program(false)
	p.Stdout, p.Stderr = out, &errs
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- p.Run(ctx, []string{"tail", "--after", "q1"}) }()
	out.want("OFFSET")
	out.want("q2 ", "b|1")
	q.add("c|7", events[2])
	out.want("q3 ", "c|7")
	q.mu.Lock()
	q.faults = []error{journal.ErrUnavailable, fmt.Errorf("again: %w", journal.ErrUnavailable)}
	q.mu.Unlock()
	q.add("c|8", events[3])
	out.want("q4 ", "c|8")
	cancel()
	if status := <-ended; status != operator.ExitOK {
		t.Errorf("tail: exit status %d, want %d", status, operator.ExitOK)
	}
	want := "refold: journal: store unavailable; retrying\nrefold: to continue, use --after q4\n"
	if errs.String() != want {
		t.Errorf("standard error %q, want %q", errs.String(), want)
	}
}

// Without an offset, tail starts with the next event, or with the first one on request.
func TestTailStart(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{"": `"offset":"q3"`, "--from-start": `"offset":"q1"`} {
		q := stored(good(2)...)
		out := &lineReader{t: t, lines: make(chan string, 10)}
		p := q.program(false)
		p.Stdout, p.Stderr = out, io.Discard
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() { ended <- p.Run(ctx, append([]string{"tail", "--json"}, strings.Fields(args)...)) }()
		<-q.waiting
		q.add("a|1", good(3)[2])
		out.want(want)
		cancel()
		if status := <-ended; status != operator.ExitOK {
			t.Errorf("tail: exit status %d, want %d", status, operator.ExitOK)
		}
	}
}

// Tail fails if the store is unavailable from the beginning, and on other errors.
func TestTailFails(t *testing.T) {
	t.Parallel()
	q := stored(good(1)...)
	q.faults = []error{journal.ErrUnavailable}
	start(t, q.program(false), "tail").want(t, operator.ExitFailed, "store unavailable")
	q.faults = []error{nil, journal.ErrOffset}
	q.add("a|1", good(1)[0])
	q.add("a|1", good(1)[0])
	q.add("a|1", good(1)[0])
	o := start(t, q.program(false), "tail", "--from-start")
	o.want(t, operator.ExitFailed, journal.ErrOffset.Error())
	o.want(t, operator.ExitFailed, "to continue, use --after q2")
	q = stored(good(3)...)
	p := q.program(true)
	p.Stdout, p.Stderr = failing{}, io.Discard
	if status := p.Run(t.Context(), []string{"tail"}); status != operator.ExitFailed {
		t.Errorf("tail with a failing output: exit status %d, want %d", status, operator.ExitFailed)
	}
}

// failing is an output whose writes fail.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errDisk }
