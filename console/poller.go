// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/journal"
)

const (
	// keepAlive is the time after which a stream without a change sends a comment.
	keepAlive = 15 * time.Second
	// writeTimeout limits the time in which a browser must read what a stream has sent.
	writeTimeout = 10 * time.Second
	// closeTimeout limits this time when the console is closed.
	closeTimeout = 500 * time.Millisecond
)

// poller asks the nodes for all browsers. Its goroutine runs while at least one stream is open.
type poller struct {
	console *Console
	memory  memory // used with gathering held

	gathering sync.Mutex // held while the nodes are asked

	mu      sync.Mutex
	viewers map[*viewer]bool
	latest  *picture
	stop    context.CancelFunc // nil if the goroutine does not run
	running sync.WaitGroup
}

// viewer is an open stream.
type viewer struct {
	needs   needs
	changed chan struct{} // has a capacity of one
}

func newPoller(c *Console) *poller {
	return &poller{console: c, viewers: map[*viewer]bool{}}
}

// watch adds a stream. The returned function removes it. It returns nil after close.
func (p *poller) watch(n needs) (v *viewer, leave func()) {
	v = &viewer{needs: n, changed: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.console.ends() {
		return nil, nil
	}
	p.viewers[v] = true
	if p.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		p.stop = cancel
		p.running.Go(func() { p.run(ctx) })
	}
	return v, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if delete(p.viewers, v); len(p.viewers) == 0 && p.stop != nil {
			p.stop()
			p.stop = nil
		}
	}
}

func (p *poller) run(ctx context.Context) {
	ticker := time.NewTicker(p.console.opts.Interval)
	defer ticker.Stop()
	for {
		p.mu.Lock()
		var n needs
		for v := range p.viewers {
			n |= v.needs
		}
		p.mu.Unlock()
		p.gather(ctx, n, 0)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		for v := range p.viewers {
			select {
			case v.changed <- struct{}{}:
			default:
			}
		}
		p.mu.Unlock()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// gather returns the latest picture, or asks the nodes if the latest picture is older than age or
// does not have the needed parts.
func (p *poller) gather(ctx context.Context, n needs, age time.Duration) *picture {
	if now := p.current(); now != nil && now.has&n == n && time.Since(now.At) < age {
		return now
	}
	p.gathering.Lock()
	defer p.gathering.Unlock()
	if now := p.current(); now != nil && now.has&n == n && time.Since(now.At) < age { // another request was faster
		return now
	}
	next := p.console.look(ctx, n)
	if n&needTail != 0 {
		p.console.follow(ctx, &p.memory.tail, next)
	}
	p.memory.add(next)
	if ctx.Err() != nil {
		return next
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = next
	return next
}

func (p *poller) current() *picture {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

// close closes the console, so that all streams end and no more are added, and waits until the goroutine
// has ended.
func (p *poller) close() {
	p.mu.Lock()
	if !p.console.ends() {
		close(p.console.closed)
	}
	p.mu.Unlock()
	p.running.Wait()
}

// sender writes a stream to a browser and limits the time of each write.
type sender struct {
	w   http.ResponseWriter
	out *http.ResponseController
	// ends reports that the console is closed.
	ends func() bool

	mu   sync.Mutex
	last bool // no further limit is set
}

// limit sets the time in which the browser must have read all that was sent, 0 for no limit. Once the
// console is closed, the limit is closeTimeout and does not change any more.
func (s *sender) limit(most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last {
		return
	}
	if s.last = s.ends(); s.last {
		most = closeTimeout
	}
	var deadline time.Time
	if most > 0 {
		deadline = time.Now().Add(most)
	}
	_ = s.out.SetWriteDeadline(deadline) // a writer of another server may have none
}

// send sends events. Between two calls there is no limit, not even the WriteTimeout of the server.
func (s *sender) send(events []byte) error {
	s.limit(writeTimeout)
	defer s.limit(0) // HTTP/2 ends a stream at its deadline, also without a write
	if _, err := s.w.Write(events); err != nil {
		return err
	}
	return s.out.Flush()
}

// stream sends the live parts of a page as server-sent events. The query is that of the page, with
// the name of the page in the field page.
func (c *Console) stream(w http.ResponseWriter, r *http.Request) {
	u, ok := c.admitted(w, r, readAction)
	if !ok {
		return
	}
	p := c.pages[r.FormValue("page")]
	if p == nil {
		http.Error(w, "console: no such stream", http.StatusNotFound)
		return
	}
	v, leave := c.poller.watch(p.needs) //nolint:contextcheck // the poller serves all streams
	if v == nil {
		http.Error(w, "console: closed", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	to := &sender{w: w, out: http.NewResponseController(w), ends: c.ends}
	ctx, end := context.WithCancel(r.Context())
	r = r.WithContext(ctx)
	var closing sync.WaitGroup
	closing.Go(func() {
		select {
		case <-c.closed:
			to.limit(closeTimeout) // for a browser that does not read
			end()
		case <-ctx.Done():
		}
	})
	defer func() {
		end()
		closing.Wait()
		to.limit(writeTimeout) // for the end of the response
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	if err := to.send(nil); err != nil {
		c.opts.Logger.ErrorContext(ctx, "console: the server cannot send a stream", slog.Any("error", err))
		return
	}
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	sent := map[string]string{}
	state := &tailState{after: journal.Offset(r.Header.Get("Last-Event-ID"))}
	for {
		var events bytes.Buffer
		select {
		case <-ctx.Done():
			return
		case <-idle.C:
			if _, err := c.authorize(r, readAction); err != nil { // the session has ended
				return
			}
			events.WriteString(":\n\n")
		case <-v.changed:
			c.compose(&events, r, u, p, sent, state)
		}
		if ctx.Err() != nil { // the parts may be incomplete
			return
		}
		if err := to.send(events.Bytes()); err != nil {
			return
		}
	}
}

// compose renders the live parts of a page and appends those that have changed.
func (c *Console) compose(events *bytes.Buffer, r *http.Request, u user, p *page, sent map[string]string, state *tailState) {
	v := c.newView(r, u, p.title)
	v.Page, v.Picture, v.stream = p.name, c.poller.current(), state
	if v.Picture == nil {
		return
	}
	parts := []string{"health"}
	if p.live {
		if parts = append(parts, "live"); p.load != nil {
			if err := p.load(r.Context(), r, v); err != nil {
				v.Problem = err.Error()
			}
		}
	}
	for _, part := range parts {
		text, err := c.assets.execute(p.name, part, v)
		if err != nil {
			c.opts.Logger.ErrorContext(r.Context(), "console: render", slog.String("page", p.name), slog.Any("error", err))
			continue
		}
		if sent[part] == text {
			continue
		}
		sent[part] = text
		fmt.Fprintf(events, "event: %s\n", part)
		if id := string(state.origin()); part == "live" && id != "" && !strings.ContainsAny(id, "\r\n\x00") {
			fmt.Fprintf(events, "id: %s\n", id)
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				fmt.Fprintf(events, "data: %s\n", line)
			}
		}
		events.WriteByte('\n')
	}
}
