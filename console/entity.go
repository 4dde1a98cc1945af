// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/sharding"
)

// entitiesData is the list of persistence IDs.
type entitiesData struct {
	Types        []inspect.TypeView
	Type, Prefix string
	IDs          *inspect.IDPage
	After        string
}

func (c *Console) loadEntities(ctx context.Context, r *http.Request, v *view) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d := &entitiesData{Type: r.FormValue("type"), Prefix: r.FormValue("prefix"), After: r.FormValue("after")}
	v.Data = d
	catalog, err := c.inspect.Types(ctx, "")
	if err != nil {
		return err
	}
	d.Types = catalog.Types
	v.Picture.countResident(d.Types)
	if !catalog.Lists {
		return errors.New("the journal cannot list persistence IDs: enter the whole ID")
	}
	d.IDs, err = c.inspect.IDs(ctx, "", inspect.IDQuery{Type: d.Type, Prefix: d.Prefix, After: d.After, Limit: 100})
	return err
}

// entityData is the page of one entity.
type entityData struct {
	ID, Type, EntityID string
	First, Highest     uint64
	// Filter are the filters of the history, as in the query.
	Filter struct{ Manifest, Text, Since, Until string }
	// Events is a page of the history, newest first.
	Events        *inspect.EventPage
	EventsProblem string
	// Older is the query of the next page, empty at the end.
	Older  string
	Moment moment

	Place            *sharding.AdminFound
	Snapshots        *inspect.SnapshotPage
	SnapshotsProblem string
	Pending          *inspect.PendingPage
	PendingProblem   string
}

// Filtered reports that the history has a filter.
func (d *entityData) Filtered() bool {
	f := &d.Filter
	return f.Manifest != "" || f.Text != "" || f.Since != "" || f.Until != ""
}

// moment is the state of an entity after an event.
type moment struct {
	ID                string
	At, Highest       uint64
	Compare           uint64 // 0 for none
	HasCompare        bool
	Without           uint64 // 0 for none
	State             *inspect.StateView
	Problem           string
	Difference        *inspect.Difference
	DifferenceProblem string
	// Title describes the difference.
	Title string
}

// Query is the query of the permalink.
func (m *moment) Query() string {
	q := url.Values{}
	if m.At > 0 {
		q.Set("at", strconv.FormatUint(m.At, 10))
	}
	if m.HasCompare {
		q.Set("compare", strconv.FormatUint(m.Compare, 10))
	}
	if m.Without > 0 {
		q.Set("without", strconv.FormatUint(m.Without, 10))
	}
	return "?" + q.Encode()
}

// Previous and Next are the neighbours of At, 0 for none.
func (m *moment) Previous() uint64 { return max(m.At, 1) - 1 }

// Next is the number of the next event, 0 for none.
func (m *moment) Next() uint64 {
	if m.At < m.Highest {
		return m.At + 1
	}
	return 0
}

// numberOf returns a field of the query as a number, and whether it has one.
func numberOf(r *http.Request, name string) (n uint64, ok bool, err error) {
	text := strings.TrimSpace(r.FormValue(name))
	if text == "" {
		return 0, false, nil
	}
	n, err = strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("%s=%q is no number of an event", name, text)
	}
	return n, true, nil
}

// fieldTime is the layout of times in the fields of the filters, in UTC.
const fieldTime = "2006-01-02T15:04:05"

// timeOf returns a field of the query as a time in UTC, in whole seconds.
func timeOf(r *http.Request, name string) (t time.Time, err error) {
	text := r.FormValue(name)
	if text == "" {
		return t, nil
	}
	for _, layout := range []string{fieldTime, "2006-01-02T15:04", time.RFC3339Nano, "2006-01-02"} {
		if t, err = time.Parse(layout, text); err == nil {
			return t.UTC().Truncate(time.Second), nil
		}
	}
	return t, fmt.Errorf("%s=%q is no time such as 2026-01-31T15:04:05", name, text)
}

const historyPage = 50 // events

func (c *Console) loadEntity(ctx context.Context, r *http.Request, v *view) error {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	d := &entityData{ID: r.PathValue("id")}
	v.Data, v.Title = d, d.ID
	err := c.loadHistory(ctx, r, d)
	if errors.Is(err, inspect.ErrNotFound) {
		return fmt.Errorf("no event has the persistence ID %q", d.ID)
	}
	if d.Events == nil {
		return err
	}
	if err != nil {
		d.EventsProblem = err.Error()
	}
	if v.Part != "" {
		return nil
	}
	var all sync.WaitGroup
	all.Go(func() { c.identify(ctx, v.Picture, d) })
	all.Go(func() { d.Moment = c.loadMoment(ctx, r, d.ID, d.Highest) })
	all.Go(func() {
		var failed error
		if d.Snapshots, failed = c.inspect.Snapshots(ctx, "", d.ID); failed != nil {
			d.SnapshotsProblem = failed.Error()
		}
	})
	all.Wait()
	home := ""
	if d.Place != nil && d.Place.Running {
		home = nameOf(d.Place.Home)
	}
	if d.Pending, err = c.inspect.Pending(ctx, home, d.ID); err != nil && !errors.Is(err, inspect.ErrUnsupported) && !errors.Is(err, inspect.ErrNoType) {
		d.PendingProblem = err.Error()
	}
	return nil
}

// loadHistory reads a page of events. If the filters are invalid, the page is that without filters.
func (c *Console) loadHistory(ctx context.Context, r *http.Request, d *entityData) (invalid error) {
	f := &d.Filter
	f.Manifest, f.Text, f.Since, f.Until = r.FormValue("manifest"), r.FormValue("text"), r.FormValue("since"), r.FormValue("until")
	q := inspect.EventQuery{ID: d.ID, Backward: true, Limit: historyPage, Manifest: f.Manifest, Text: f.Text}
	var errs [3]error
	q.Since, errs[0] = timeOf(r, "since")
	q.Until, errs[1] = timeOf(r, "until")
	q.From, _, errs[2] = numberOf(r, "from")
	if !q.Since.IsZero() {
		f.Since = q.Since.Format(fieldTime)
	}
	if !q.Until.IsZero() {
		f.Until = q.Until.Format(fieldTime)
		q.Until = q.Until.Add(time.Second - 1) // the page shows whole seconds
	}
	page, err := c.inspect.Events(ctx, "", q)
	if err != nil {
		return err
	}
	d.Events, d.First, d.Highest = page, page.First, page.Highest
	for page.Next > 0 && len(page.Events) == 0 && ctx.Err() == nil { // the filters have left out a whole page
		q.From = page.Next
		if page, err = c.inspect.Events(ctx, "", q); err != nil {
			break
		}
		d.Events = page
	}
	if d.Events.Next > 0 {
		older := url.Values{"from": {strconv.FormatUint(d.Events.Next, 10)}, "part": {"history"}}
		for name, value := range map[string]string{"manifest": f.Manifest, "text": f.Text, "since": f.Since, "until": f.Until} {
			if value != "" {
				older.Set(name, value)
			}
		}
		d.Older = "?" + older.Encode()
	}
	return errors.Join(append(errs[:], err)...)
}

// identify sets the type of an entity and the node where it runs.
func (c *Console) identify(ctx context.Context, p *picture, d *entityData) {
	page, err := c.inspect.IDs(ctx, "", inspect.IDQuery{Prefix: d.ID, Limit: 1})
	if err == nil && len(page.IDs) > 0 && page.IDs[0].ID == d.ID {
		d.Type, d.EntityID = page.IDs[0].Type, page.IDs[0].EntityID
	}
	t := p.typ(d.Type)
	if t == nil || d.EntityID == "" {
		return
	}
	node := t.Coordinator
	if node == "" {
		node = t.Hosts[0].Name
	}
	if found, err := c.shards.Find(ctx, node, d.Type, d.EntityID); err == nil {
		d.Place = found
	}
}

// loadMoment computes the state and the difference that the query selects. Without a number, it is
// the state after the last event.
func (c *Console) loadMoment(ctx context.Context, r *http.Request, id string, highest uint64) moment {
	m := moment{ID: id, Highest: highest}
	at, _, err := numberOf(r, "at")
	var failed [2]error
	m.Compare, m.HasCompare, failed[0] = numberOf(r, "compare")
	m.Without, _, failed[1] = numberOf(r, "without")
	if err = errors.Join(err, failed[0], failed[1]); err != nil {
		m.Problem = err.Error()
		return m
	}
	if highest > 0 {
		at = min(at, highest)
	}
	m.At = cmp.Or(at, highest)
	q := inspect.DifferenceQuery{ID: id, From: max(m.At, 1) - 1, To: m.At}
	m.Title = fmt.Sprintf("Changed by event %d", m.At)
	switch {
	case m.Without > 0:
		q.From, q.Without = m.At, []uint64{m.Without}
		m.Title = fmt.Sprintf("Without event %d, after event %d", m.Without, m.At)
	case m.HasCompare:
		q.From = m.Compare
		m.Title = fmt.Sprintf("From event %d to event %d", m.Compare, m.At)
	}
	// One after the other: the node keeps checkpoints of the first replay, which serve the second one.
	if m.State, err = c.inspect.State(ctx, "", inspect.StateQuery{ID: id, At: m.At}); err != nil {
		m.Problem = reason(err)
	}
	if m.At > 0 {
		if m.Difference, err = c.inspect.Difference(ctx, "", q); err != nil {
			m.DifferenceProblem = reason(err)
		}
	}
	if highest == 0 && m.State != nil {
		m.Highest = m.State.Highest
	}
	return m
}

// reason returns the text of an error for a page.
func reason(err error) string {
	if errors.Is(err, inspect.ErrNoType) {
		return "The program of the console does not contain the Go type of this entity, so that states cannot be computed. The history is complete."
	}
	return err.Error()
}

// showMoment answers the slider: it replaces the state and the difference only.
func (c *Console) showMoment(w http.ResponseWriter, r *http.Request) {
	u, ok := c.admitted(w, r, readAction)
	if !ok {
		return
	}
	id := r.PathValue("id")
	address := link(c.opts.Prefix, "entities/"+url.PathEscape(id))
	if r.Header.Get("Hx-Request") == "" {
		http.Redirect(w, r, address+"?"+r.URL.RawQuery, http.StatusSeeOther) //nolint:gosec // the address is below the prefix
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	highest, _, _ := numberOf(r, "highest")
	m := c.loadMoment(ctx, r, id, highest)
	v := c.newView(r, u, id)
	v.Data = &entityData{ID: id, Moment: m}
	w.Header().Set("Hx-Replace-Url", address+m.Query())
	c.render(w, http.StatusOK, "entity", "moment", v)
}

// liveData compares the state in memory with the replayed state.
type liveData struct {
	ID      string
	Live    *inspect.Live
	Problem string
	Node    string
}

// showLive compares the state in memory with the state that all events give. It can take long.
func (c *Console) showLive(w http.ResponseWriter, r *http.Request) {
	u, ok := c.admitted(w, r, readAction)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	d := liveData{ID: r.PathValue("id"), Node: r.FormValue("node")}
	var err error
	if d.Live, err = c.inspect.Live(ctx, d.Node, d.ID); err != nil {
		d.Problem = reason(err)
	}
	v := c.newView(r, u, "Memory and events: "+d.ID)
	v.Data = d
	part := "main"
	if r.Header.Get("Hx-Request") == "" {
		part, v.Nav = "page", c.nav("entities")
	}
	c.render(w, http.StatusOK, "live", part, v)
}

// Limits of the tree of a JSON value, and of its beginning in a folded element and in a row.
const (
	maxTreeNodes = 4000
	maxTreeDepth = 40
	previewSize  = 72
	briefSize    = 220
)

// tree renders a JSON value as folded elements. Objects and lists below the first level are folded.
func tree(raw json.RawMessage) template.HTML {
	t := &treeWriter{left: maxTreeNodes}
	t.value(raw, 0)
	return template.HTML(t.out.String()) //nolint:gosec // treeWriter escapes each text
}

type treeWriter struct {
	out  strings.Builder
	left int
}

type member struct {
	key   string
	value json.RawMessage
}

// members returns the members of an object or the elements of a list.
func members(raw json.RawMessage) (all []member, list bool, err error) {
	in := json.NewDecoder(bytes.NewReader(raw))
	begin, err := in.Token()
	if err != nil {
		return nil, false, err
	}
	list = begin == json.Delim('[')
	for in.More() {
		var m member
		if !list {
			key, err := in.Token()
			if err != nil {
				return nil, false, err
			}
			m.key, _ = key.(string)
		}
		if err := in.Decode(&m.value); err != nil {
			return nil, false, err
		}
		all = append(all, m)
	}
	return all, list, nil
}

func (t *treeWriter) text(class, s string) {
	t.out.WriteString(`<span class="` + class + `">` + template.HTMLEscapeString(s) + `</span>`)
}

func (t *treeWriter) value(raw json.RawMessage, depth int) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		t.text("j-k", "nothing")
		return
	case t.left <= 0 || depth > maxTreeDepth:
		t.text("j-cut", "…")
		return
	}
	t.left--
	switch raw[0] {
	case '{', '[':
		t.nested(raw, depth)
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			s = string(raw)
		}
		t.text("j-s", strconv.Quote(s))
	case 't', 'f', 'n':
		t.text("j-k", string(raw))
	default:
		t.text("j-n", string(raw))
	}
}

func (t *treeWriter) nested(raw json.RawMessage, depth int) {
	all, list, err := members(raw)
	if err != nil {
		t.text("j-cut", string(raw))
		return
	}
	if len(all) == 0 {
		t.text("j-p", string(raw[:1])+string(raw[len(raw)-1:]))
		return
	}
	if depth > 0 {
		t.out.WriteString(`<details class="j"><summary>`)
		t.text("j-p", beginning(raw, previewSize))
		t.out.WriteString(`</summary>`)
	}
	t.out.WriteString(`<ul class="j">`)
	for i, m := range all {
		if t.left <= 0 {
			t.out.WriteString("<li>")
			t.text("j-cut", fmt.Sprintf("… %d more", len(all)-i))
			t.out.WriteString("</li>")
			break
		}
		t.out.WriteString("<li>")
		if list {
			t.text("j-i", strconv.Itoa(i))
		} else {
			t.text("j-f", m.key)
		}
		t.out.WriteString(" ")
		t.value(m.value, depth+1)
		t.out.WriteString("</li>")
	}
	t.out.WriteString("</ul>")
	if depth > 0 {
		t.out.WriteString("</details>")
	}
}

// brief is the beginning of a payload for a row of the history.
func brief(raw json.RawMessage) string { return beginning(raw, briefSize) }

// beginning is the beginning of a JSON value, in one line.
func beginning(raw json.RawMessage, most int) string {
	s := strings.ToValidUTF8(string(raw[:min(len(raw), most)]), "")
	if len(raw) > most {
		s += "…"
	}
	return s
}

// sizeText is a number of bytes with a unit.
func sizeText[T int | uint64](n T) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, i := float64(n), 0
	for value >= 1024 && i < len(units)-1 {
		value, i = value/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %s", value, units[i])
}
